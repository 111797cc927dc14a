// Which stacks make a copy in 16 bits for an operation under torch.autocast, as native frames tell:
// of a weight, which autocast keeps until it ends, or of another operand.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "analysis/names/stacks_with.h"

namespace tidemark {

// By the native frame of the function that makes the copy.
inline bool is_autocast_copy(std::string_view function) {
  return function.find("autocast::cached_cast") != std::string_view::npos;
}

class AutocastStacks {
 public:
  explicit AutocastStacks(const Dictionary& names)
      : of_(stacks_with(names, [&](const Frame& frame) {
          return frame.kind == FrameKind::kNative && is_autocast_copy(names.string(frame.function));
        })) {}

  bool contain(uint32_t stack) const { return stack < of_.size() && of_[stack]; }

 private:
  std::vector<bool> of_;  // by stack
};

}  // namespace tidemark
