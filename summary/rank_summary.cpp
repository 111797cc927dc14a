#include "summary/rank_summary.h"

#include <algorithm>

#include "analysis/findings/rules.h"
#include "proto/clock.h"

namespace tidemark {

namespace {

class Retimer {
 public:
  explicit Retimer(const Alignment& clock) : clock_(clock) {}

  // Zero is no time.
  void operator()(int64_t& time_ns) const {
    if (time_ns != 0) time_ns = aligned_ns(clock_, time_ns);
  }
  void operator()(Peak& peak) const { (*this)(peak.time_ns); }

  void operator()(Ledger& ledger) const {
    (*this)(ledger.time_ns);
    if (ledger.reading) (*this)(ledger.reading->time_ns);
  }

  void operator()(DeviceReport& d) const {
    for (Peak* peak : {&d.allocated_peak, &d.requested_peak, &d.reserved_peak, &d.driver_peak,
                       &d.device_used_peak}) {
      (*this)(*peak);
    }
    (*this)(d.at_ns);
    (*this)(d.ledger);
    if (d.ledger_at_driver_peak) (*this)(*d.ledger_at_driver_peak);
    (*this)(d.fragmentation.time_ns);
    for (PhaseReport& phase : d.phases) (*this)(phase.peak);
    for (OomReport& oom : d.ooms) (*this)(oom.time_ns);
    for (LibraryRefusals& refusals : d.library_refusals) (*this)(refusals.last_ns);
    (*this)(d.run);
  }

  void operator()(WholeRun& run) const {
    (*this)(run.kept_from_ns);
    for (RunPart& part : run.parts) {
      (*this)(part.begin_ns);
      (*this)(part.end_ns);
    }
    for (Peak* peak : {&run.allocated_peak, &run.reserved_peak, &run.driver_peak,
                       &run.device_used_peak}) {
      (*this)(*peak);
    }
    (*this)(run.grows_from_ns);
    (*this)(run.grows_until_ns);
  }

  void operator()(RankDigest& digest) const {
    for (DeviceHeights& heights : digest.devices) {
      (*this)(heights.framework);
      (*this)(heights.driver);
    }
    for (CommunicatorCalls& calls : digest.calls) {
      if (calls.ran != 0) (*this)(calls.ran_until_ns);
      for (CollectiveCall& call : calls.waiting) (*this)(call.start_ns);
    }
    digest.clock_residual_ns = clock_.residual_ns;
    digest.clock_checked = clock_.samples != 0;
    digest.clock_known = clock_.method != AlignmentMethod::kNone;
  }

 private:
  const Alignment& clock_;
};

}  // namespace

uint64_t CoarseCurve::at(Value value, int64_t time_ns) const {
  const std::vector<uint64_t>& parts = most[value];
  if (parts.empty() || time_ns < begin_ns || time_ns > end_ns) return kUnknown;
  const double share = static_cast<double>(time_ns - begin_ns) /
                       static_cast<double>(std::max<int64_t>(1, end_ns - begin_ns));
  const auto part = static_cast<size_t>(share * static_cast<double>(parts.size()));
  return parts[std::min(part, parts.size() - 1)];
}

void retime(RankSummary& summary, const Alignment& clock, int64_t start_ns) {
  const Retimer to_job(clock);
  to_job(summary.digest);
  for (DeviceReport& device : summary.report.devices) to_job(device);
  to_job(summary.report.pinned.driver_peak);
  if (summary.report.pinned.torch) to_job(summary.report.pinned.torch->time_ns);
  for (CoarseCurve& curve : summary.curves) {
    to_job(curve.begin_ns);
    to_job(curve.end_ns);
  }
  to_job(summary.events_from_ns);
  to_job(summary.first_ns);
  to_job(summary.last_ns);
  for (Finding& f : summary.findings) {
    for (auto& [key, value] : f.evidence) {
      if (key != "time_ns" && key != "since_ns") continue;
      value = static_cast<uint64_t>(aligned_ns(clock, static_cast<int64_t>(value)));
    }
    say_when(f, start_ns);
  }
}

}  // namespace tidemark
