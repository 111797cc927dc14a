#include "viewer/model/trace/finding_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "analysis/insight/fragmentation.h"
#include "analysis/wording.h"

namespace tidemark::view {

namespace {

uint32_t lane_of(const Model& model, const Finding& f) {
  uint32_t fallback = UINT32_MAX;
  for (uint32_t i = 0; i < model.lanes.size(); ++i) {
    const Lane& lane = model.lanes[i];
    const ProcessModel& process = model.process_of(lane);
    if (!f.concerns(process.info.rank, process.info.pid, process.file)) continue;
    if (lane.device() == f.device) return i;
    if (fallback == UINT32_MAX) fallback = i;
  }
  return fallback;
}

void at_peak(FindingPlace& place, const Peak& peak, std::string what, ShownBy by) {
  place.event = peak.event;
  place.what = std::move(what);
  place.by = by;
}

// As the report tells its holes: with the block for which memory was reserved in its place.
void at_reserved_peak(FindingPlace& place, const AllocationHistory& m) {
  at_peak(place, m.reserved_peak, "the reserved peak", ShownBy::kMap);
  place.event = served_after(m, place.event);
}

// The maximum of the card, or of one owner on it.
void at_highest(const Model& model, FindingPlace& place, const StepSeries& series,
                const char* what) {
  if (series.empty()) return;
  const auto top = std::max_element(series.value.begin(), series.value.end());
  const auto index = static_cast<size_t>(top - series.value.begin());
  place.time = since_start(model, series.time_ns[index]);
  place.what = what;
  place.by = ShownBy::kMoment;
}

// Where steps do not grow: from the first of the blocks of its line that are there at the last
// error, or at the peak, to that instant. False: none is.
bool over_blocks(const Model& model, FindingPlace& place, const Lane& lane, const Finding& f) {
  const AllocationHistory& m = *lane.memory;
  if (f.frames.empty() || m.event_count() == 0) return false;
  const uint32_t end = m.failures.empty() ? m.allocated_peak.event : m.failures.back().event;
  const Dictionary& names = model.process_of(lane).names;
  std::unordered_map<uint32_t, bool> of_line;  // by stack
  for (const Allocation& a : m.allocations) {
    if (a.birth > end) break;
    if (a.release <= end || a.stack == 0) continue;
    const auto [known, fresh] = of_line.try_emplace(a.stack);
    if (fresh) known->second = names.stack_text(a.stack) == f.frames;
    if (!known->second) continue;
    // Before it nothing of them was there.
    place.compare = a.birth == 0 ? 0 : a.birth - 1;
    place.event = end;
    place.range = TimeRange{m.time_ns[*place.compare], m.time_ns[end]};
    place.what = "what was allocated and not freed";
    place.by = ShownBy::kFlame;
    return true;
  }
  return false;
}

// The steps that grew, with a comparison of their end with their beginning.
void over_growth(const Model& model, FindingPlace& place, const Lane& lane, const Finding& f) {
  const Steps& steps = model.steps_of(lane);
  const AllocationHistory& m = *lane.memory;
  if (steps.growth_bytes_per_step <= 0 && over_blocks(model, place, lane, f)) return;
  if (steps.boundaries.size() < 2 || m.event_count() == 0) return;
  const size_t last_step = steps.boundaries.size() - 1;
  const size_t first = std::min<size_t>(steps.window_first, last_step);
  const size_t last = std::min<size_t>(std::max<size_t>(steps.window_last, first + 1), last_step);
  const auto event = [&](size_t step) {
    return std::min(steps.boundaries[step], m.event_count() - 1);
  };
  // Little is live where a step begins: what stays from one beginning to the other has grown.
  place.compare = event(first);
  place.event = event(last);
  place.range = TimeRange{m.time_ns[event(first)], m.time_ns[event(last)]};
  place.what = "what was allocated and not freed";
  place.by = ShownBy::kFlame;
}

void at_validation(const Model& model, FindingPlace& place, const Lane& lane) {
  const DeviceReport* const report = model.report_of(lane);
  if (report == nullptr) return;
  for (const PhaseReport& p : report->phases) {
    if (is_forward_only(p.kind)) {
      at_peak(place, p.peak, fmt::format("the peak of the {}", phase_text(p.kind)),
              ShownBy::kFlame);
    }
  }
}

void at_largest_hole(FindingPlace& place, const Lane& lane) {
  const MemoryState state = lane.states.state_after(place.event);
  const auto largest =
      std::max_element(state.holes.begin(), state.holes.end(),
                       [](const Hole& a, const Hole& b) { return a.size_bytes < b.size_bytes; });
  if (largest != state.holes.end()) place.hole = largest->address;
}

// From the first to the last segment that was returned to the driver.
void over_shrinking(FindingPlace& place, const Lane& lane) {
  const AllocationHistory& m = *lane.memory;
  uint32_t first = kNever;
  uint32_t last = 0;
  for (uint32_t e = 0; e < m.event_count(); ++e) {
    if (m.change[e] != Change::kShrink) continue;
    first = std::min(first, e);
    last = e;
  }
  if (first == kNever) return;
  place.event = first;
  place.range = TimeRange{m.time_ns[first], m.time_ns[last]};
  place.what = "memory returned to the driver and reserved again";
  place.by = ShownBy::kTimeline;
}

void at_divergence(const Model& model, FindingPlace& place) {
  const RankComparison& ranks = model.report.comparison;
  if (!ranks.divergence.time_ns) return;
  place.range = TimeRange{*ranks.divergence.time_ns, ranks.highest.time_ns};
  place.what = "from where this rank is mostly above the median of the ranks to its peak";
  place.by = ShownBy::kFlame;
}

}  // namespace

std::optional<size_t> last_oom(const Model& model, uint32_t lane) {
  std::optional<size_t> found;
  for (size_t i = 0; i < model.ooms.size(); ++i) {
    if (model.ooms[i].lane == lane) found = i;
  }
  return found;
}

uint64_t owner_bytes(const Model& model, const FindingPlace& place, int64_t time_ns) {
  const Lane& lane = model.lanes[place.lane];
  if (place.owner == kPinnedHost) return model.pinned[lane.process].pinned().at(time_ns);
  const Ledger ledger = lane.ledger->at(time_ns);
  if (place.owner == kNotResident) return ledger.not_resident_bytes;
  for (const LedgerLine& line : ledger.lines) {
    if (line.owner == place.owner && line.bytes > 0) return static_cast<uint64_t>(line.bytes);
  }
  return 0;
}

std::optional<FindingPlace> place_of(const Model& model, const Finding& f) {
  FindingPlace place;
  place.lane = lane_of(model, f);
  if (place.lane >= model.lanes.size()) return std::nullopt;
  const Lane& lane = model.lanes[place.lane];
  const AllocationHistory& m = *lane.memory;
  const auto is = [&](std::string_view id) { return f.id == id; };
  at_peak(place, m.allocated_peak, "the allocated peak", ShownBy::kMoment);
  if (is("capacity") || is("memory_fraction") || is("fragmentation")) {
    if (is("fragmentation")) at_reserved_peak(place, m);
    if (const auto oom = last_oom(model, place.lane); oom) {
      place.oom = oom;
      place.event = model.ooms[*oom].event;
      place.what = "the error";
    }
    place.by = is("fragmentation") ? ShownBy::kMap
               : is("capacity")    ? ShownBy::kFlame
                                   : ShownBy::kTimeline;
    if (is("fragmentation")) at_largest_hole(place, lane);
  } else if (is("graph_private_pool") || is("shape_variance") || is("stream_pools")) {
    at_reserved_peak(place, m);
  } else if (is("creep") || is("retained_graph")) {
    over_growth(model, place, lane, f);
  } else if (is("eval_keeps_graph")) {
    at_validation(model, place, lane);
  } else if (is("cache_thrash")) {
    over_shrinking(place, lane);
  } else if (is("rank_imbalance")) {
    at_divergence(model, place);
  } else if (is("nccl_overhead")) {
    place.owner = "nccl";
    for (const OwnerCurve& owner : lane.owners) {
      if (owner.name != "nccl") continue;
      at_highest(model, place, lane.ledger->driver().owners().at(owner.owner), "NCCL's maximum");
    }
  } else if (is("stray_context") || is("other_process")) {
    place.owner = "other_processes";
    at_highest(model, place, lane.ledger->used(), "the maximum used on the card");
  } else if (is("sleep_leftover")) {
    place.owner = kNotResident;
    at_highest(model, place, lane.ledger->residence().asleep(), "where most is asleep");
  } else if (is("pinned_growth")) {
    place.owner = kPinnedHost;
    place.time = model.span_ns();
    place.what = "the end of the run";
  } else if (is("accumulated_graphs") || is("unused_gradients") || is("checkpoint_kept") ||
             is("kept_by_error") || is("one_operation_peak") || is("queued_inputs") ||
             is("joined_results") || is("trained_base") || is("autocast_copies")) {
    place.by = ShownBy::kFlame;
  } else if (is("activation_peak") || is("stale_gradients") || is("optimizer_state_spike")) {
    place.colour = ColourBy::kCategory;
    place.by = ShownBy::kMap;
  }
  return place;
}

void go_to(const Model& model, Selection& selection, const FindingPlace& place) {
  selection.clear_highlights(model);
  if (place.oom) {
    selection.go_to_oom_at(model, *place.oom);
  } else if (place.time) {
    selection.set_time(model, place.lane, *place.time);
  } else {
    selection.set_event(model, place.lane, place.event);
  }
  if (place.compare) selection.compare_from(model, *place.compare);
  if (place.colour) selection.colouring.by = *place.colour;
  if (place.range && place.range->end_ns > place.range->begin_ns) {
    const VisibleRange range = since_start(model, *place.range);
    const double margin = range.span() * 0.1;
    selection.view.show(range.begin - margin, range.end + margin);
  } else {
    selection.reveal_cursor(model);
  }
  if (place.hole) selection.highlights.hole = *place.hole;
}

}  // namespace tidemark::view
