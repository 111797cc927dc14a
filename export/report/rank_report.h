// The comparison of a job's ranks as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "analysis/ranks/ranks.h"
#include "export/report/json_writer.h"

namespace tidemark {

// Lines without indentation; empty when there is nothing to compare. Times count from `start_ns`.
std::vector<std::string> rank_lines(const RankComparison& comparison, int64_t start_ns);

// "ranks 0, 1, 3", at most eight of them by number.
std::string ranks_text(const std::vector<int64_t>& ranks);
// Which ranks wait for which, since when and in which collective.
std::string stuck_text(const StuckCollective& stuck, int64_t start_ns);

void put_rank_comparison(JsonWriter& json, const RankComparison& comparison);

}  // namespace tidemark
