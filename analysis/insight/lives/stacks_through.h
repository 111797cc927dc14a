// Stacks by their innermost frame that says something.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "analysis/names/dictionary.h"

namespace tidemark {

// Stacks for whose innermost Python frame, or the innermost one outside PyTorch,
// is_one(function, file) holds.
template <typename IsOne>
std::vector<bool> stacks_through(const Dictionary& names, IsOne&& is_one) {
  std::vector<bool> through(names.stack_count(), false);
  for (uint32_t id = 1; id < through.size(); ++id) {
    const Frame& frame = names.frame(names.stack(id).frame);
    const std::string_view file = names.string(frame.file);
    const uint32_t parent = names.stack(id).parent;
    const bool python = file.ends_with(".py");
    const bool inner = !python || file.find("torch/") != file.npos;
    through[id] = (python && is_one(names.string(frame.function), file)) ||
                  (inner && parent < id && through[parent]);
  }
  return through;
}

}  // namespace tidemark
