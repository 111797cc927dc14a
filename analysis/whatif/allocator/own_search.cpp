#include "analysis/whatif/allocator/own_search.h"

#include <algorithm>
#include <utility>

namespace tidemark {

namespace {

// Whether the limit may have changed anything. If it did not, no higher one does.
bool may_have_met_limit(const AllocatorSettings& settings, const AllocatorCounts& counts) {
  return settings.gc_threshold > 0 || settings.fail_before_driver || counts.retries != 0 ||
         counts.driver_frees != 0;
}

}  // namespace

void OwnSearch::use_version(TorchVersion version) {
  settings_.version = version;
  settings_.rules.one_division_rounds = !version.at_least(4);
}

void OwnSearch::replay(uint64_t allowed, uint64_t capacity, bool prefer, uint64_t most_allowed) {
  const AllocatorLimits limits = AllocatorLimits::of(allowed, capacity, card_);
  auto attempt = std::make_unique<OwnReplay>(model_, settings_, limits);
  attempt->run();
  if (best_.replay) {
    const uint64_t kept = best_.replay->match().errors();
    const uint64_t now = attempt->match().errors();
    if (now > kept || (now == kept && !prefer)) return;
  }
  best_ = {settings_, limits, std::max(allowed, most_allowed), std::move(attempt)};
}

void OwnSearch::attempt(TorchVersion version, uint64_t allowed) {
  if (exact()) return;
  use_version(version);
  if (allowed != 0) return replay(allowed, 0);
  bool by_driver = false;
  const auto failed = bounds_from_failures(by_driver);
  if (failed && by_driver) return replay(0, failed->highest);
  // Start with the lowest: a failed request must not seem to fit because the guessed limit is too
  // high.
  if (failed) return replay(search(*failed, failed->lowest, false), 0, false, failed->highest);
  if (settings_.gc_threshold > 0 && memory_went_back()) {
    // With a limit above the highest of these, garbage would never have been collected.
    const uint64_t peak = model_.reserved_peak.bytes;
    const double highest = static_cast<double>(peak) / settings_.gc_threshold;
    const Bounds bounds{peak, static_cast<uint64_t>(highest)};
    return replay(search(bounds, bounds.highest, false), 0);
  }
  replay(0, 0);
  const ReplayMatch& match = best_.replay->match();
  if (match.emptied_needlessly == 0 && match.emptied_before_need != 0 &&
      match.lowest_need > model_.reserved_peak.bytes) {
    const Bounds bounds{model_.reserved_peak.bytes, match.lowest_need - 1};
    replay(0, search(bounds, bounds.highest, true), true);
  }
}

bool OwnSearch::memory_went_back() const {
  return std::find(model_.change.begin(), model_.change.end(), Change::kShrink) !=
         model_.change.end();
}

// Bounds of the limit from failed requests: at least as much as was ever reserved, less than they
// would have led to.
std::optional<OwnSearch::Bounds> OwnSearch::bounds_from_failures(bool& by_driver) const {
  std::optional<Bounds> bounds;
  uint64_t reserved = 0;
  uint32_t event = 0;
  for (const FailedAllocation& f : model_.failures) {
    for (; event < model_.event_count() && event <= f.event; ++event) {
      const uint32_t row = model_.subject[event];
      if (model_.change[event] == Change::kGrow) reserved += model_.segment_changes[row].size_bytes;
      if (model_.change[event] == Change::kShrink) {
        reserved -= model_.segment_changes[row].size_bytes;
      }
    }
    const uint64_t wanted = settings_.segment_bytes(settings_.rules.round(f.requested_bytes));
    // If the driver had enough memory, torch's own limit failed the request: a memory fraction.
    const bool refused = f.device_free_bytes < wanted;
    const uint64_t highest = reserved + (refused ? f.device_free_bytes : wanted - 1);
    if (bounds && highest >= bounds->highest) continue;
    bounds = Bounds{0, highest};
    by_driver = refused;
  }
  if (!bounds) return bounds;
  bounds->lowest = model_.reserved_peak.bytes;
  bounds->highest = std::max(bounds->highest, bounds->lowest);
  return bounds;
}

// With a limit that is too high the model frees too little or too late; with one that is too low,
// too much.
uint64_t OwnSearch::search(Bounds bounds, uint64_t first, bool by_driver) const {
  uint64_t farthest = first;
  uint32_t reached = 0;
  uint64_t limit = first;
  while (bounds.lowest <= bounds.highest) {
    const auto limits =
        by_driver ? AllocatorLimits::of(0, limit, card_) : AllocatorLimits::of(limit, 0, card_);
    OwnReplay attempt(model_, settings_, limits);
    attempt.run(true);
    const ReplayMatch& match = attempt.match();
    if (match.errors() == 0) return limit;
    if (match.first_mismatch > reached) {
      reached = match.first_mismatch;
      farthest = limit;
    }
    if (match.first_reserves_more) {
      bounds.highest = limit - 1;
    } else if (!may_have_met_limit(settings_, attempt.allocator().counts())) {
      break;
    } else {
      bounds.lowest = limit + 1;
    }
    limit = bounds.lowest + (bounds.highest - bounds.lowest) / 2;
  }
  return farthest;
}

}  // namespace tidemark
