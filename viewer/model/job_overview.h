// A job of very many ranks: the summaries of all of them, and the traces of the few that are looked
// at. All ranks are drawn from their summaries; choosing one loads it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collector/trace_source.h"
#include "summary/job_report.h"

namespace tidemark::view {

struct JobOverview {
  JobSummaries job;
  RankComparison comparison;
};

// One of its ranks, to be loaded.
struct RankChoice {
  std::shared_ptr<const JobOverview> job;
  size_t rank = 0;  // in job.ranks
};

struct OpenedJob {
  std::shared_ptr<const JobOverview> overview;
  TraceModel trace;  // of the ranks that are looked at
  std::shared_ptr<const TraceSource> source;
};

// Whether a path is opened in this way.
bool has_many_ranks(const std::string& path);

// Loads the rank with the highest peak, and a typical one to compare it with.
Result<OpenedJob> open_job(const std::string& path, const std::function<void(double)>& progress);
// Loads the chosen rank instead.
Result<OpenedJob> open_choice(const RankChoice& choice);

}  // namespace tidemark::view
