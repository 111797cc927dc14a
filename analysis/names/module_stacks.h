// Which stacks go through the call of a module. A function of torch.nn.functional that the program
// itself calls does not.
#pragma once

#include <string_view>
#include <vector>

#include "analysis/names/stacks_with.h"

namespace tidemark {

inline std::vector<bool> module_stacks(const Dictionary& names) {
  return stacks_with(names, [&](const Frame& frame) {
    const std::string_view function = names.string(frame.function);
    return function.ends_with("_call_impl") || function == "forward" ||
           function.ends_with(".forward");
  });
}

}  // namespace tidemark
