// What is said of the part of a card that no readings are there of.
#pragma once

#include <fmt/format.h>

#include <string>

#include "analysis/insight/card/limit.h"
#include "analysis/wording.h"

namespace tidemark {

inline std::string assumed_context_text() {
  return fmt::format(
      "the CUDA context and libraries are assumed to take {} of the card: this recording has no "
      "readings of it",
      size_text(kContextBytes));
}

}  // namespace tidemark
