// Enough bytes were free, but in holes: none was large enough, or they merely take up the card.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "analysis/findings/advice.h"
#include "analysis/findings/left_graphs.h"
#include "analysis/findings/rules.h"
#include "analysis/insight/fragmentation.h"
#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kWorthSaying = uint64_t{256} << 20;

bool is_much(uint64_t lost, uint64_t reserved) {
  return lost >= kWorthSaying && lost >= reserved / 7;
}

// Where the card is not known: more is lost than used, and another setting avoids much of it.
bool is_wasteful(const DeviceEvidence& d, const MemoryState& state, size_t devices) {
  constexpr uint64_t kVeryMuch = uint64_t{1} << 30;
  if (d.limit.bytes != 0 || state.free_bytes() < kVeryMuch) return false;
  if (state.free_bytes() <= state.totals.active) return false;
  const std::optional<Advice> settings = change_allocator(d, devices);
  return settings && settings->saves_bytes >= d.model->reserved_peak.bytes / 4;
}

std::string summary_of(const DeviceEvidence& d, const MemoryState& state,
                       std::string_view instant) {
  if (!d.ran_out()) {
    return fmt::format("{} reserved at the {} for {} in use: {} is in holes",
                       size_text(state.totals.reserved), instant, size_text(state.totals.active),
                       size_text(state.free_bytes()));
  }
  const FailedAllocation& failure = d.model->failures.back();
  const std::string failed = d.out_of_memory_text();
  const std::string free = size_text(state.free_bytes());
  const std::string request = size_text(failure.requested_bytes);
  const UsableHoles usable = usable_holes(*d.model, state, failure);
  if (state.free_bytes() < failure.requested_bytes) {
    return fmt::format(
        "{} although {} in use and {} requested fit below {}: {} of it is lost to holes", failed,
        size_text(state.totals.active), request, size_text(d.limit.bytes), free);
  }
  if (usable.bytes == 0) {
    return fmt::format(
        "{} with {} free in holes of other streams and pools, which a request of {} cannot use",
        failed, free, request);
  }
  if (usable.largest_bytes >= failure.requested_bytes) {
    return fmt::format("{} with {} free in holes, none of which was used for {}", failed, free,
                       request);
  }
  const bool some = usable.bytes < state.free_bytes();
  const auto [largest, wanted] = size_texts(usable.largest_bytes, failure.requested_bytes);
  return fmt::format("{} with {} free in holes: the largest{}, {}, is too small for {}", failed,
                     free, some ? " that the request can use" : "", largest, wanted);
}

// Whether a block outlives the step that runs at an event: it is older than the step, or of a kind
// that stays.
bool outlives_running_step(const DeviceEvidence& d, uint32_t row, uint32_t event) {
  const auto& boundaries = d.steps.boundaries;
  const auto next = std::upper_bound(boundaries.begin(), boundaries.end(), event);
  if (next != boundaries.begin() && d.model->allocations.birth(row) < *std::prev(next)) return true;
  switch (d.categories.of[row]) {
    case Category::kActivation:
    case Category::kGradient:
    case Category::kInput:
    case Category::kTemporary:
      return false;
    case Category::kUnknown:
      return !d.ran_out();  // what the program would have done with it is not known
    default:
      return true;
  }
}

// Holes beside blocks that stay: nothing returns them to the driver, and requests that need more
// cannot use them. Those beside working memory are gone with it. By the stack of the block.
struct StuckHoles {
  uint64_t bytes = 0;
  uint64_t most_bytes = 0;
  uint32_t stack = 0;  // beside which most of them are
};
StuckHoles stuck_holes(const DeviceEvidence& d, const MemoryState& state) {
  if (state.live.empty()) return {};  // there may be segments only, and no allocation at all
  // Programs free what they keep after their last request, or after an error.
  const uint32_t end = d.model->event_count();
  const size_t last_made = d.model->allocations.size() - 1;
  const uint32_t last = d.ran_out() ? state.event : d.model->allocations.birth(last_made);
  const auto stays = [&](uint32_t row) {
    const Allocation& a = d.model->allocations[row];
    return a.release > last && std::min(a.release, end) - a.birth >= end / 4 &&
           outlives_running_step(d, row, state.event);
  };
  StuckHoles stuck;
  std::unordered_map<uint32_t, uint64_t> by_stack;
  auto live = state.live.begin();
  for (size_t i = 0, hole = 0; i < state.segments.size(); ++i) {
    const SegmentRange& segment = state.segments[i];
    uint64_t free = 0;
    for (; hole < state.holes.size() && state.holes[hole].segment == i; ++hole) {
      free += state.holes[hole].size_bytes;
    }
    uint32_t stack = 0;
    for (; live != state.live.end(); ++live) {
      const Allocation& a = d.model->allocations[*live];
      if (a.address >= segment.address + segment.size_bytes) break;
      if (a.address >= segment.address && stays(*live)) stack = a.stack;
    }
    if (stack == 0 || segment.expandable) continue;  // pages are unmapped one by one
    stuck.bytes += free;
    uint64_t& sum = by_stack[stack];
    sum += free;
    if (sum > stuck.most_bytes) {
      stuck.most_bytes = sum;
      stuck.stack = stack;
    }
  }
  return stuck;
}

// Names the line whose blocks keep most of the holes from being returned to the driver or, if none
// is to blame, the line that ran out.
void name_the_pin(Finding& f, const DeviceEvidence& d, const MemoryState& state) {
  const uint32_t stack = stuck_holes(d, state).stack;
  f.frames = d.process->names.stack_text(stack);
  // Blocks that came before everything that has been freed were allocated first already.
  uint32_t first_pin = kNever;
  uint32_t first_freed = kNever;
  for (const Allocation& a : d.model->allocations) {
    if (a.release <= state.event) first_freed = std::min(first_freed, a.birth);
    if (a.stack == stack && a.release > state.event) first_pin = std::min(first_pin, a.birth);
  }
  // States are created where the optimizer needs them.
  const StackRole role = d.roles->of(stack);
  const bool states = role == StackRole::kOptimizer || role == StackRole::kOptimizerInit;
  if (f.frames.empty() || first_pin < first_freed || states) {
    if (d.ran_out()) f.frames = d.process->names.stack_text(d.model->failures.back().stack);
    return;
  }
  f.advice.push_back(
      {"move_pins",
       fmt::format("allocate the long-lived blocks of {} first, in one piece: scattered among "
                   "short-lived blocks, they keep whole segments from being freed",
                   place_of(f.frames)),
       0});
}

}  // namespace

void find_fragmentation(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (!d.has_caching_allocator() || d.model->event_count() == 0) continue;
    const uint64_t cost =
        d.model->reserved_peak.bytes - std::min(d.model->reserved_peak.bytes, d.peak_bytes());
    const HolesInstant worst = worst_for_holes(*d.model);
    if (!d.ran_out() && !is_much(cost, d.model->reserved_peak.bytes)) continue;
    const MemoryState state = state_after(*d.model, worst.event);
    const char* severity = nullptr;
    if (d.ran_out()) {
      if (failed_for_holes(d)) severity = kError;
    } else if (is_much(state.free_bytes(), state.totals.reserved)) {
      severity = d.is_tight() ? kWarning : kInfo;
    }
    if (severity == nullptr) continue;
    const bool stuck = stuck_holes(d, state).bytes >= d.model->reserved_peak.bytes / 5;
    if (d.has_room() && !stuck && !is_wasteful(d, state, evidence.devices.size())) continue;
    Finding f = d.finding("fragmentation", severity, summary_of(d, state, worst.name));
    f.evidence = {{"cached_free_bytes", state.free_bytes()},
                  {"holes", state.holes.size()},
                  {"largest_hole_bytes", state.largest_hole_bytes()},
                  {"reserved_bytes", state.totals.reserved},
                  {"peak_cost_bytes", cost}};
    add(f.advice, change_allocator(d, evidence.devices.size()));
    d.model->release_pages();  // its replays read all events, and there may be many ranks
    // Where nearly everything was in use, the next request will not fit, either.
    const bool other_cause = fails_for_what_was_left(d);
    if (d.ran_out() && !other_cause && state.totals.active >= d.limit.bytes / 10 * 9) {
      add(f.advice, halve_batch(d));
      add(f.advice, mixed_precision(d));
      add(f.advice, checkpoint_layers(d));
    }
    name_the_pin(f, d, state);
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
