#include "analysis/plan/plan_report.h"

#include <span>

#include "analysis/insight/card/limit.h"
#include "analysis/whatif/whatif_report.h"

namespace tidemark {

namespace {

Result<PlanFit> fit(const Planner& planner, const PlanQuestion& question, bool fits) {
  if (planner.capacity() == 0 && planner.whatif().card_bytes() != 0) {
    return Error{
        "--fit: nothing of the card is left for PyTorch; give a larger one with --card SIZE"};
  }
  if (planner.capacity() == 0) {
    return Error{"--fit: the size of the card is not in the recording; give it with --card SIZE"};
  }
  PlanFit out;
  const Result<FittingBatch> batch = largest_batch(planner, question.change, question.samples);
  if (!batch) return batch.error();
  out.batch = *batch;
  if (batch->factor > 0) {
    PlanChange change = question.change;
    change.batch = batch->factor;
    Result<PlanOutcome> outcome = planner.plan(change);
    if (!outcome) return outcome.error();
    out.outcome = std::move(*outcome);
  }
  if (fits) return out;
  out.cheapest = cheapest_fit(planner, question.change, question.samples);
  if (!out.cheapest) return out;
  Result<PlanOutcome> outcome = planner.plan(*out.cheapest);
  if (outcome) out.cheapest_outcome = std::move(*outcome);
  return out;
}

// The process of the other recording that plays the same part in its job.
const ProcessModel* counterpart(const TraceModel& other, const ProcessModel& process) {
  for (const ProcessModel& p : other.processes) {
    if (p.info.rank == process.info.rank && !p.framework.empty()) return &p;
  }
  return other.processes.empty() ? nullptr : &other.processes.front();
}

Result<PlanDevice> plan_device(const ProcessModel& process, const AllocationHistory& history,
                               const TraceModel* other, const PlanQuestion& question) {
  Result<std::unique_ptr<Planner>> prepared =
      Planner::prepare(process, history.device, question.options);
  if (!prepared) return prepared.error();
  Planner& planner = **prepared;
  if (question.fit || question.change.batch != 1 || question.change.seq != 1) {
    if (Status ok = planner.knows_growth(); !ok) return ok.error();
  }
  PlanDevice d;
  if (other != nullptr) {
    const ProcessModel* second = counterpart(*other, process);
    if (second == nullptr) return Error{other->path + ": no process was recorded in it"};
    const bool seq = question.change.seq != 1 && question.change.batch == 1;
    const Status ok = planner.learn(*second, seq ? Dimension::kSequence : Dimension::kBatch);
    if (!ok) return Error{other->path + ": " + ok.error().message};
    d.learnt_ratio = planner.learnt().ratio;
  }
  Result<PlanOutcome> outcome = planner.plan(question.change);
  if (!outcome) return outcome.error();
  d.replayed_reserved_peak = planner.replayed_reserved_peak();
  d.rank = process.info.rank;
  d.pid = process.info.pid;
  d.file = process.file;
  d.device = history.device;
  if (const Device* card = process.device(history.device)) {
    d.card_name = process.names.string(card->name);
  }
  d.own_conf = planner.whatif().own_conf();
  d.recorded_reserved_peak = planner.whatif().recorded_reserved_peak();
  d.recorded_allocated_peak = planner.whatif().recorded_allocated_peak();
  d.card_bytes = planner.whatif().card_bytes();
  d.other_bytes = planner.outside_bytes();
  d.assumes_other = planner.assumes_outside();
  d.is_other_card = question.options.whatif.card_bytes != 0;
  d.leaves_others = d.is_other_card && need_outside_torch(process, history.device).leaves_others;
  d.capacity = planner.capacity_for(question.change);
  d.capacity_source = planner.limit_source_for(question.change);
  d.ran_out = planner.ran_out();
  d.other_device_failed = planner.other_device_that_failed();
  d.ends_at_error = planner.ends_at_error();
  d.has_whole_step = planner.has_whole_step();
  d.may_divide_batch = planner.may_divide_batch();
  d.outcome = std::move(*outcome);
  d.recorded_curve = planner.recorded_curve();
  if (!question.fit) return d;
  Result<PlanFit> found = fit(planner, question, d.outcome.fits());
  if (!found) return found.error();
  d.fit = std::move(*found);
  return d;
}

// One batch runs on all devices of a process: the smallest that fits decides.
void share_batch(std::span<PlanDevice> devices) {
  const PlanDevice* least = nullptr;
  for (const PlanDevice& d : devices) {
    const bool less = d.fit && (least == nullptr || d.fit->batch.factor < least->fit->batch.factor);
    if (less) least = &d;
  }
  if (least == nullptr) return;
  const SharedBatch shared{least->device, least->fit->batch};
  for (PlanDevice& d : devices) {
    if (d.fit && d.fit->batch.factor > shared.batch.factor) d.fit->shared = shared;
  }
}

}  // namespace

Result<PlanReport> make_plan_report(const TraceModel& model, const TraceModel* other,
                                    const PlanQuestion& question) {
  PlanReport report;
  report.path = model.path;
  if (other != nullptr) report.other_path = other->path;
  report.start_ns = model.start_ns;
  report.change = question.change;
  report.samples = question.samples;
  std::optional<Error> reason;
  for (const ProcessModel& process : model.processes) {
    if (question.rank && process.info.rank != *question.rank) continue;
    const size_t first = report.devices.size();
    for (const AllocationHistory& history : process.framework) {
      if (question.device && history.device != *question.device) continue;
      Result<PlanDevice> d = plan_device(process, history, other, question);
      if (d) {
        report.devices.push_back(std::move(*d));
      } else if (!reason || !history.allocations.empty()) {
        reason = d.error();
      }
    }
    share_batch(std::span(report.devices).subspan(first));
  }
  if (!report.devices.empty()) return report;
  return nothing_to_replay(model, reason, question.rank || question.device);
}

}  // namespace tidemark
