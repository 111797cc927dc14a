// The comparison of a job's ranks, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "analysis/ranks.h"
#include "export/json_writer.h"

namespace tidemark {

// Lines without indent; empty when there is nothing to compare. Times count from `start_ns`.
std::vector<std::string> rank_lines(const RankComparison& comparison, int64_t start_ns);

void put_rank_comparison(JsonWriter& json, const RankComparison& comparison);

}  // namespace tidemark
