#include "summary/job_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "analysis/findings/rules.h"
#include "collector/recover/trace_file.h"

namespace tidemark {

namespace {

// More than this nobody reads.
constexpr size_t kMostExamples = 12;

// From a coarse curve: the highest value near an instant.
class CoarseLevel : public RankLevel {
 public:
  explicit CoarseLevel(const CoarseCurve& curve) : curve_(curve) {}
  int64_t end_ns() const override { return curve_.end_ns; }
  uint64_t at(int64_t time_ns) const override {
    const std::vector<uint64_t>& values = curve_.most[CoarseCurve::kAllocated];
    if (values.empty() || time_ns < curve_.begin_ns) return 0;
    return time_ns > curve_.end_ns ? values.back() : curve_.at(CoarseCurve::kAllocated, time_ns);
  }

 private:
  const CoarseCurve& curve_;
};

// Ranks to describe in detail, the most important first.
class Choice {
 public:
  Choice(const JobSummaries& job, size_t most) : job_(job), most_(most) {}

  void add(size_t rank) {
    const bool there = std::find(chosen_.begin(), chosen_.end(), rank) != chosen_.end();
    if (!there && chosen_.size() < most_) chosen_.push_back(rank);
  }
  void add(const RankHeight& height, bool framework) {
    if (const auto rank = rank_of_height(job_, height, framework); rank) add(*rank);
  }
  void add_rank(int64_t rank, uint64_t pid = 0, const std::string& file = {}) {
    for (size_t i = 0; i < job_.ranks.size(); ++i) {
      const RankReport& r = job_.ranks[i].summary.report;
      const bool meant = r.rank == rank && (pid == 0 || r.pid == pid);
      if (meant && (file.empty() || r.file == file)) return add(i);
    }
  }
  // The first error and the last.
  void add_errors() {
    std::vector<std::pair<int64_t, size_t>> errors;
    for (size_t i = 0; i < job_.ranks.size(); ++i) {
      for (const DeviceReport& d : job_.ranks[i].summary.report.devices) {
        if (!d.ooms.empty()) errors.emplace_back(d.ooms.back().time_ns, i);
      }
    }
    std::sort(errors.begin(), errors.end());
    if (errors.empty()) return;
    add(errors.back().second);
    add(errors.front().second);
  }
  std::vector<size_t> take() {
    std::sort(chosen_.begin(), chosen_.end());
    return std::move(chosen_);
  }

 private:
  const JobSummaries& job_;
  size_t most_;
  std::vector<size_t> chosen_;
};

std::vector<size_t> ranks_to_detail(const JobSummaries& job, const RankComparison& c,
                                    const std::vector<Finding>& findings, const Instant& at,
                                    size_t most) {
  Choice choice(job, std::min(most, kMostExamples));
  if (at.kind == Instant::Kind::kOom) choice.add_errors();
  if (c.compared) choice.add(c.highest, c.framework);
  choice.add_errors();
  if (c.compared) choice.add(c.typical, c.framework);
  if (c.divergence.found) choice.add_rank(c.divergence.rank);
  for (const StuckCollective& stuck : c.stuck) {
    if (!stuck.absent.empty()) choice.add_rank(stuck.absent.front());
  }
  std::set<std::string> said;
  for (const Finding& f : findings) {
    if (f.severity != kInfo && said.insert(f.id).second) choice.add_rank(f.rank, f.pid, f.file);
  }
  if (!c.compared) {
    for (size_t i = 0; i < job.ranks.size(); ++i) choice.add(i);
  }
  return choice.take();
}

// Whether ranks of the job are not there: they would be taken for strangers.
bool lacks_ranks(const JobSummaries& job) {
  std::set<int64_t> ranks;
  uint64_t world_size = 0;
  for (const JobRank& rank : job.ranks) {
    const Process& info = rank.summary.facts.info;
    if (info.rank >= 0) ranks.insert(info.rank);
    world_size = std::max(world_size, info.world_size);
  }
  return ranks.size() < world_size;
}

std::vector<Finding> take_findings(JobSummaries& job, std::optional<int64_t> only) {
  const bool no_strangers = lacks_ranks(job);
  std::vector<Finding> all;
  for (JobRank& rank : job.ranks) {
    if (only && rank.summary.facts.info.rank != *only) continue;
    for (Finding& f : rank.summary.findings) {
      if (!(no_strangers && f.id == "other_process")) all.push_back(std::move(f));
    }
  }
  sort_findings(all);
  return all;
}

Report frame_of(const JobSummaries& job) {
  Report report;
  report.path = job.path;
  report.notes = job.notes;
  report.incomplete = job.incomplete;
  report.kind = "job";
  report.start_ns = job.start_ns;
  report.end_ns = job.end_ns;
  report.damage = job.damage;
  report.unknown_blocks = job.unknown_blocks;
  return report;
}

// What needs the other processes of the host, or all findings of the rank.
void complete(RankReport& detailed, const RankReport& plain) {
  for (DeviceReport& d : detailed.devices) {
    const auto same = std::find_if(plain.devices.begin(), plain.devices.end(),
                                   [&](const auto& p) { return p.device == d.device; });
    if (same == plain.devices.end()) continue;
    d.device_used_peak = same->device_used_peak;
    d.highest_reading_bytes = same->highest_reading_bytes;
    if (!d.has_framework) d.steps.growth_bytes_per_step = same->steps.growth_bytes_per_step;
  }
}

}  // namespace

std::optional<size_t> rank_of_height(const JobSummaries& job, const RankHeight& height,
                                     bool framework) {
  for (size_t i = 0; i < job.ranks.size(); ++i) {
    const RankDigest& digest = job.ranks[i].summary.digest;
    if (digest.rank != height.rank) continue;
    for (const DeviceHeights& d : digest.devices) {
      const Peak& peak = framework ? d.framework : d.driver;
      if (d.device == height.device && peak.bytes == height.bytes) return i;
    }
  }
  return {};
}

Result<TraceReader> open_rank(const JobRank& rank) {
  std::vector<std::string> notes;  // the summary has them
  Result<TraceReader> reader = open_trace_file(rank.path, notes);
  if (!reader) return reader.error();
  for (const uint32_t other : rank.others) reader->leave_out(other);
  if (rank.clock.method != AlignmentMethod::kNone) {
    reader->set_alignment(rank.process, rank.clock);
  }
  return reader;
}

Result<TraceModel> load_rank(const JobRank& rank) {
  const Result<TraceReader> reader = open_rank(rank);
  if (!reader) return reader.error();
  Result<TraceModel> model = load_trace({&*reader, 1});
  if (model && model->processes.empty()) return Error{rank.path + ": it contains no process"};
  if (model) model->processes.front().file = rank.summary.report.file;
  return model;
}

SummarizedRanks::SummarizedRanks(const JobSummaries& job) : job_(job) {
  for (const JobRank& rank : job.ranks) digests_.push_back(rank.summary.digest);
}

bool SummarizedRanks::load(size_t rank) {
  if (loaded_.contains(rank)) return true;
  Result<TraceModel> model = load_rank(job_.ranks[rank]);
  if (!model) return false;
  loaded_.emplace(rank, std::move(*model));
  return true;
}

const ProcessModel* SummarizedRanks::process(size_t digest) {
  return load(digest) ? &loaded_.at(digest).processes.front() : nullptr;
}

std::shared_ptr<const FrameHashes> SummarizedRanks::frames(size_t digest) {
  const JobRank& rank = job_.ranks[digest];
  std::shared_ptr<const FrameHashes>& known = frames_[rank.summary.frames];
  if (known == nullptr) known = job_.frames_of(rank);
  if (known == nullptr) {  // its file is gone or damaged
    if (const Result<TraceModel> model = load_rank(rank); model) {
      known = std::make_shared<const FrameHashes>(frame_hashes(model->processes.front().names));
    }
  }
  return known;
}

std::unique_ptr<RankLevel> SummarizedRanks::level(size_t digest, int64_t device, bool) {
  for (const CoarseCurve& curve : job_.ranks[digest].summary.curves) {
    if (curve.device == device) return std::make_unique<CoarseLevel>(curve);
  }
  return nullptr;
}

TraceModel SummarizedRanks::take(const std::vector<size_t>& ranks) {
  TraceModel trace;
  trace.path = job_.path;
  trace.start_ns = job_.start_ns;
  trace.end_ns = job_.end_ns;
  for (const size_t rank : ranks) {
    if (!load(rank)) continue;
    TraceModel& model = loaded_.at(rank);
    trace.processes.push_back(std::move(model.processes.front()));
    for (auto& index : model.indexing) trace.indexing.push_back(std::move(index));
    for (const auto& [kind, rows] : model.rows_by_kind) trace.rows_by_kind[kind] += rows;
    loaded_.erase(rank);
  }
  return trace;
}

Report make_plain_report(JobSummaries& job, std::optional<int64_t> rank) {
  Report report = frame_of(job);
  report.findings = take_findings(job, rank);
  for (JobRank& r : job.ranks) {
    if (r.summary.facts.info.source == Source::kTorchSnapshot) report.kind = "torch-snapshot";
    if (rank && r.summary.facts.info.rank != *rank) continue;
    report.events += r.summary.events;
    report.ranks.push_back(std::move(r.summary.report));
  }
  // The annotations of a snapshot may be older than its events.
  int64_t from_ns = job.end_ns;
  for (const JobRank& r : job.ranks) from_ns = std::min(from_ns, r.summary.events_from_ns);
  const bool snapshot = report.kind == "torch-snapshot";
  if (!snapshot) from_ns = job.start_ns;
  report.events_ns = snapshot && report.events == 1 ? 0 : job.end_ns - from_ns;
  return report;
}

Result<JobReport> make_job_report(JobSummaries& job, const ReportOptions& given,
                                  size_t most_detailed) {
  ReportOptions options = given;
  SummarizedRanks ranks(job);
  RankComparison comparison = compare_ranks(ranks);
  std::vector<Finding> findings = take_findings(job, options.rank);
  std::vector<size_t> detailed;
  if (options.rank) {
    for (size_t i = 0; i < job.ranks.size(); ++i) {
      if (job.ranks[i].summary.facts.info.rank == *options.rank) detailed.push_back(i);
    }
    if (detailed.empty()) {
      return Error{fmt::format("{}: no rank {} in this trace", job.path, *options.rank)};
    }
  } else {
    detailed = ranks_to_detail(job, comparison, findings, options.at, most_detailed);
  }
  JobReport made;
  made.details = ranks.take(detailed);
  options.only_compare = true;
  const std::shared_ptr<Groundwork> ground =
      lay_groundwork(made.details, std::move(comparison), options.rank);
  if (options.curve_points != 0) {
    made.categories = category_curves(*ground, job.start_ns, job.end_ns, 500);
  }
  Result<Report> details = make_report(made.details, options, *ground);
  if (!details) return details.error();
  made.report = make_plain_report(job, options.rank);
  made.report.comparison = std::move(details->comparison);
  findings.insert(findings.end(), details->findings.begin(), details->findings.end());
  sort_findings(findings);
  made.report.findings = std::move(findings);
  for (RankReport& rank : details->ranks) {
    const auto plain =
        std::find_if(made.report.ranks.begin(), made.report.ranks.end(), [&](const RankReport& r) {
          return r.rank == rank.rank && r.pid == rank.pid && r.host == rank.host &&
                 r.file == rank.file && !r.detailed;
        });
    if (plain == made.report.ranks.end()) continue;
    complete(rank, *plain);
    *plain = std::move(rank);
  }
  return made;
}

}  // namespace tidemark
