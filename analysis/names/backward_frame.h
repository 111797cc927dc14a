// Whether a frame says that a backward pass runs what it calls, such as layers that are computed
// again.
#pragma once

#include <string_view>

#include "analysis/names/dictionary.h"

namespace tidemark {

inline bool is_in_backward(const Dictionary& names, const Frame& frame) {
  if (frame.kind == FrameKind::kAutograd) return true;
  std::string_view function = names.string(frame.function);
  function = function.substr(function.rfind('.') + 1);  // npos + 1 is 0
  if (function == "backward") return true;
  if (names.string(frame.file).find("checkpoint") == std::string_view::npos) return false;
  return function == "recompute_fn" || function == "unpack_hook";
}

}  // namespace tidemark
