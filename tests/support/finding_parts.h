// What a finding says and advises.
#pragma once

#include <algorithm>
#include <string_view>

#include "analysis/findings/finding.h"

namespace tidemark {

inline const Advice* advice_of(const Finding& f, std::string_view action) {
  const auto found = std::find_if(f.advice.begin(), f.advice.end(),
                                  [&](const Advice& a) { return a.action == action; });
  return found == f.advice.end() ? nullptr : &*found;
}

inline bool says(const Finding& f, std::string_view text) {
  return f.summary.find(text) != std::string_view::npos;
}

}  // namespace tidemark
