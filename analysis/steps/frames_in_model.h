// Where in a model a stack allocates, whichever line of the program calls the model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "analysis/steps/stack_roles.h"

namespace tidemark {

// Frames of a stack inside the outermost module that it calls, innermost first.
inline std::vector<uint32_t> frames_in_model(const Dictionary& names, const StackRoles& roles,
                                             uint32_t stack) {
  std::vector<uint32_t> frames = names.frames_of(stack);
  const size_t outside = names.frames_of(roles.caller_of(stack)).size();
  frames.resize(frames.size() - std::min(frames.size(), outside));
  return frames;
}

}  // namespace tidemark
