// What a process takes of a card besides its tensors, where the recording has no readings of it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "analysis/wording.h"

namespace tidemark {

// 631 MiB on an H200, with PyTorch: the context, loaded code and what the driver keeps.
inline constexpr uint64_t kContextBytes = uint64_t{640} << 20;

inline std::string assumed_context_text() {
  return fmt::format(
      "the CUDA context and libraries are assumed to take {} of the card: this recording has no "
      "readings of it",
      size_text(kContextBytes));
}

}  // namespace tidemark
