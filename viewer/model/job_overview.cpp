#include "viewer/model/job_overview.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tidemark::view {

namespace {

Result<OpenedJob> look_at(std::shared_ptr<const JobOverview> overview, SummarizedRanks& ranks,
                          std::optional<size_t> chosen) {
  const RankComparison& c = overview->comparison;
  std::vector<size_t> wanted;
  const auto add = [&](std::optional<size_t> rank) {
    if (rank && std::find(wanted.begin(), wanted.end(), *rank) == wanted.end()) {
      wanted.push_back(*rank);
    }
  };
  add(chosen);
  if (c.compared) {
    if (!chosen) add(rank_of_height(overview->job, c.highest, c.framework));
    add(rank_of_height(overview->job, c.typical, c.framework));
  }
  if (wanted.empty()) add(0);
  OpenedJob opened;
  auto source = std::make_shared<TraceSource>();
  for (const size_t rank : wanted) {
    Result<TraceReader> reader = open_rank(overview->job.ranks[rank]);
    if (!reader) return reader.error();
    source->readers.push_back(std::move(*reader));
  }
  opened.trace = ranks.take(wanted);
  if (opened.trace.processes.size() != wanted.size()) {
    return Error{overview->job.ranks[wanted.front()].path + ": cannot be loaded"};
  }
  source->warnings = overview->job.notes;
  source->incomplete = overview->job.incomplete;
  opened.trace.notes = overview->job.notes;
  opened.trace.incomplete = overview->job.incomplete;
  opened.trace.damage = overview->job.damage;
  opened.trace.unknown_blocks = overview->job.unknown_blocks;
  opened.overview = std::move(overview);
  opened.source = std::move(source);
  return opened;
}

}  // namespace

bool has_many_ranks(const std::string& path) {
  return count_traces(path) > kMostDetailed;
}

Result<OpenedJob> open_job(const std::string& path, const std::function<void(double)>& progress) {
  SummaryOptions options;
  options.progress = progress;
  Result<JobSummaries> job = read_job(path, options);
  if (!job) return job.error();
  auto overview = std::make_shared<JobOverview>();
  overview->job = std::move(*job);
  SummarizedRanks ranks(overview->job);
  overview->comparison = compare_ranks(ranks);
  return look_at(std::move(overview), ranks, std::nullopt);
}

Result<OpenedJob> open_choice(const RankChoice& choice) {
  SummarizedRanks ranks(choice.job->job);
  return look_at(choice.job, ranks, choice.rank);
}

}  // namespace tidemark::view
