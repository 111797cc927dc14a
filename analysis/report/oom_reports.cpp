#include "analysis/report/oom_reports.h"

#include <algorithm>
#include <map>
#include <string>

namespace tidemark {

namespace {

// A program that catches the error and retries causes thousands; the last ones are enough.
constexpr size_t kMaxOoms = 16;

OomReport oom_of(const AllocationHistory& model, const FailedAllocation& failure,
                 const Dictionary& names) {
  const MemoryState state = state_after(model, failure.event);
  return {failure,
          state.totals.allocated,
          state.totals.pending(),
          state.totals.reserved,
          usable_holes(model, state, failure).largest_bytes,
          names.stack_text(failure.stack)};
}

OomReport oom_of(const FailedAllocation& failure, const ProcessModel& process) {
  const DriverState state = driver_state_at(process.driver, failure.device, failure.time_ns);
  OomReport oom{failure, 0, 0, state.card_bytes, 0, process.names.stack_text(failure.stack)};
  for (const OutOfMemory& row : process.ooms) {
    if (row.time_ns == failure.time_ns && row.device == failure.device) {
      oom.device_free_bytes = row.device_free_bytes;
    }
  }
  return oom;
}

// Whether PyTorch may have retried without a refusal of the driver: a memory fraction refuses by
// itself. Segments are then freed, and a new one is the next event, as after empty_cache().
bool may_have_retried_unseen(const AllocationHistory& model,
                             const std::vector<const FailedAllocation*>& handled) {
  int64_t grown_ns = INT64_MIN;
  const SegmentChange* before = nullptr;
  for (const SegmentChange& change : model.segment_changes) {
    if (change.grows) {
      const bool freed_first =
          before != nullptr && !before->grows && before->event + 1 == change.event;
      const auto refused = [&](const FailedAllocation* f) {
        return f->time_ns > grown_ns && f->time_ns <= change.time_ns;
      };
      if (freed_first && std::none_of(handled.begin(), handled.end(), refused)) {
        return true;
      }
      grown_ns = change.time_ns;
    }
    before = &change;
  }
  return false;
}

}  // namespace

std::vector<const FailedAllocation*> driver_failures(const ProcessModel& process, int64_t device) {
  std::vector<const FailedAllocation*> failures;
  for (const FailedAllocation& f : process.driver.failures) {
    if (f.device == device) failures.push_back(&f);
  }
  return failures;
}

void add_ooms(DeviceReport& d, const DeviceEvidence& evidence) {
  const ProcessModel& process = *evidence.process;
  std::vector<const FailedAllocation*> all = driver_failures(process, d.device);
  if (evidence.model != nullptr) {
    for (const FailedAllocation& f : evidence.model->failures) all.push_back(&f);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto* a, const auto* b) { return a->time_ns < b->time_ns; });
  d.oom_count = all.size();
  for (size_t i = all.size() - std::min(all.size(), kMaxOoms); i < all.size(); ++i) {
    d.ooms.push_back(all[i]->layer == Layer::kDriver
                         ? oom_of(*all[i], process)
                         : oom_of(*evidence.model, *all[i], process.names));
  }
  if (!process.records_driver() || evidence.limit.source == LimitSource::kFraction) {
    return;
  }
  std::vector<const FailedAllocation*> handled;  // by PyTorch, not by a library
  for (const FailedAllocation& f : process.driver.handled) {
    if (f.device == d.device && process.names.string(f.owner) == "torch") handled.push_back(&f);
  }
  if (evidence.model != nullptr && may_have_retried_unseen(*evidence.model, handled)) return;
  uint64_t retries = handled.size();
  if (evidence.model != nullptr) {
    for (const FailedAllocation& f : evidence.model->failures) retries -= f.refusals;
  }
  d.alloc_retries = retries;
}

void add_library_refusals(DeviceReport& d, const ProcessModel& process) {
  std::map<std::string, LibraryRefusals, std::less<>> sums;
  for (const FailedAllocation& f : process.driver.handled) {
    const bool of_operator = f.layer == Layer::kFramework;
    const std::string library(of_operator ? "torch" : process.names.string(f.owner));
    if (f.device != d.device || (library == "torch" && !of_operator)) continue;
    LibraryRefusals& sum = sums[library];
    sum.library = library;
    ++sum.count;
    sum.largest_bytes = std::max(sum.largest_bytes, f.requested_bytes);
    sum.last_ns = f.time_ns;
  }
  for (auto& [library, sum] : sums) d.library_refusals.push_back(std::move(sum));
}

}  // namespace tidemark
