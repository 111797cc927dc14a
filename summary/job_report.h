// The report on a job of very many ranks: facts and findings of all ranks come from their
// summaries, and only the ranks that it describes in detail are loaded.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "analysis/stacked/category_curves.h"
#include "summary/job_summaries.h"

namespace tidemark {

// Of a job with more ranks, the report details only some: those that stand out, a typical one, and
// examples of those with problems.
inline constexpr size_t kMostDetailed = 64;

// Opens one process of a job, on the job's clock, and loads it.
Result<TraceReader> open_rank(const JobRank& rank);
Result<TraceModel> load_rank(const JobRank& rank);
// The process that reached this height; nothing: none did.
std::optional<size_t> rank_of_height(const JobSummaries& job, const RankHeight& height,
                                     bool framework);

// Ranks as summaries; those that are asked for more are loaded and kept.
class SummarizedRanks : public RankSource {
 public:
  // The job must outlive it.
  explicit SummarizedRanks(const JobSummaries& job);

  std::span<const RankDigest> digests() const override { return digests_; }
  int64_t start_ns() const override { return job_.start_ns; }
  const ProcessModel* process(size_t digest) override;
  std::shared_ptr<const FrameHashes> frames(size_t digest) override;
  std::unique_ptr<RankLevel> level(size_t digest, int64_t device, bool framework) override;

  // A trace of these ranks, in this order; those that cannot be read are left out. Takes what was
  // loaded.
  TraceModel take(const std::vector<size_t>& ranks);

 private:
  bool load(size_t rank);

  const JobSummaries& job_;
  std::vector<RankDigest> digests_;
  std::map<size_t, TraceModel> loaded_;
  std::map<uint64_t, std::shared_ptr<const FrameHashes>> frames_;
};

struct JobReport {
  Report report;
  TraceModel details;                     // of the ranks that are described in detail
  std::vector<CategoryCurve> categories;  // of `details`; if the options request curves
};

// Takes the reports and findings of the summaries. At most `most_detailed` ranks are described in
// detail, but never more than a reader would read.
Result<JobReport> make_job_report(JobSummaries& job, const ReportOptions& options,
                                  size_t most_detailed);

// The same without details: no rank is loaded, and there is no comparison of the ranks.
Report make_plain_report(JobSummaries& job, std::optional<int64_t> rank);

}  // namespace tidemark
