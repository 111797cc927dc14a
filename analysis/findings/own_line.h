// The line to name for blocks of one kind, where others come through the same lines.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "analysis/names/dictionary.h"

namespace tidemark {

// Bytes of a stack or through a frame: of that kind, and of others.
struct LineShare {
  uint64_t own = 0;
  uint64_t others = 0;
};

// The stack from the innermost line of the user's code on that hardly any other block goes through:
// training and validation, or student and teacher, share the model's lines. Nothing if there is
// none.
std::optional<uint32_t> own_line(const Dictionary& names,
                                 const std::unordered_map<uint32_t, LineShare>& stacks,
                                 uint32_t stack);

}  // namespace tidemark
