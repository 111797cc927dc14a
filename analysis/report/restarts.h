// Ranks that an elastic launcher started again: a report has one entry for each of their processes.
#pragma once

#include <algorithm>

#include "analysis/report/report.h"

namespace tidemark {

// Whether the rank alone does not tell which process is meant.
inline bool is_restarted(const Report& report, int64_t rank) {
  return std::count_if(report.ranks.begin(), report.ranks.end(),
                       [&](const RankReport& r) { return r.rank == rank; }) > 1;
}

}  // namespace tidemark
