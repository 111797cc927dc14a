#include "analysis/findings/causes/failed_for_holes.h"

#include <algorithm>

#include "analysis/findings/causes/left_graphs.h"
#include "analysis/findings/growth/growing_step.h"

namespace tidemark {

bool failed_for_holes(const DeviceEvidence& d) {
  constexpr uint64_t kMuch = 7;        // the share that counts as much in any run
  constexpr uint64_t kHardlyAny = 20;  // 5 % of the memory is always in holes
  constexpr size_t kLeastSteps = 2;    // the first one creates optimizer states
  if (!d.ran_out()) return false;
  const MemoryTotals totals = d.at_failure();
  const FailedAllocation& failure = d.model->failures.back();
  // The allocator asks for whole segments: with no holes at all, this one would not have fitted.
  if (totals.active + segment_bytes_for(failure.requested_bytes) > d.limit.bytes) return false;
  // Nor would the rest of a step that needs more than the ones before it.
  if (outgrows_limit(d)) return false;
  const uint64_t holes = totals.reserved - std::min(totals.active, totals.reserved);
  if (holes >= totals.reserved / kMuch) return true;
  if (holes < totals.reserved / kHardlyAny || fails_for_what_was_left(d)) return false;
  // Fewer holes are to blame only where steps that needed as much have passed; or in the backward
  // pass, from whose beginning on a step needs less and less.
  return d.steps.before_event(failure.event) > kLeastSteps &&
         (d.peak_bytes() >= totals.active + failure.requested_bytes ||
          d.roles->of(failure.stack) == StackRole::kBackward);
}

}  // namespace tidemark
