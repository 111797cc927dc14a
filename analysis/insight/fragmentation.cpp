#include "analysis/insight/fragmentation.h"

#include <algorithm>

#include "analysis/history/allocator_rules.h"

namespace tidemark {

namespace {

Pin pin_of(const Allocation& a, int64_t now_ns, const Dictionary& names) {
  return {a.block_bytes, now_ns - a.birth_ns(), names.stack_text(a.stack)};
}

PinnedHole pinned(const AllocationHistory& model, const MemoryState& state, const Hole& hole,
                  const Dictionary& names) {
  PinnedHole p;
  p.address = hole.address;
  p.bytes = hole.size_bytes;
  const SegmentRange& segment = state.segments[hole.segment];
  p.segment_bytes = segment.size_bytes;
  const uint64_t end = segment.address + segment.size_bytes;
  const auto behind = std::partition_point(state.live.begin(), state.live.end(), [&](uint32_t i) {
    return model.allocations[i].address < hole.address;
  });
  if (behind != state.live.begin()) {
    const Allocation& before = model.allocations[*std::prev(behind)];
    if (before.address >= segment.address) p.pins.push_back(pin_of(before, state.time_ns, names));
  }
  if (behind != state.live.end()) {
    const Allocation& after = model.allocations[*behind];
    if (after.address < end) p.pins.push_back(pin_of(after, state.time_ns, names));
  }
  return p;
}

// Whether a segment serves small requests: such segments are allocated or mapped in units of
// 2 MiB, others in larger ones.
bool is_small(const SegmentChange& made) {
  constexpr uint64_t kSmallSegment = uint64_t{2} << 20;
  return made.seeded ? made.small : made.size_bytes <= kSmallSegment;
}

}  // namespace

uint32_t served_after(const AllocationHistory& model, uint32_t event) {
  const uint32_t next = event + 1;
  return next < model.event_count() && model.change[next] == Change::kBirth ? next : event;
}

HolesInstant worst_for_holes(const AllocationHistory& model) {
  if (!model.failures.empty()) return {model.failures.back().event, "out-of-memory error"};
  const bool known = model.seed_events == 0 || model.reserved_peak.event >= model.seed_events;
  if (known) return {served_after(model, model.reserved_peak.event), "reserved peak"};
  return {model.allocated_peak.event, "allocated peak"};
}

UsableHoles usable_holes(const AllocationHistory& model, const MemoryState& state,
                         const FailedAllocation& request) {
  UsableHoles usable;
  const bool small = request.requested_bytes <= kSmallBytes;
  uint32_t last = UINT32_MAX;
  bool fits = false;
  for (const Hole& hole : state.holes) {  // by address, so those of a segment follow each other
    if (hole.segment != last) {
      last = hole.segment;
      const SegmentRange& range = state.segments[last];
      const SegmentChange& made = model.segment_changes[range.change];
      fits = range.stream == request.stream && made.pool == request.pool && is_small(made) == small;
    }
    if (!fits) continue;
    usable.bytes += hole.size_bytes;
    if (hole.size_bytes <= usable.largest_bytes) continue;
    usable.largest_bytes = hole.size_bytes;
    usable.largest_at = hole.address;
  }
  return usable;
}

Fragmentation fragmentation_of(const AllocationHistory& model, const MemoryState& state,
                               const Dictionary& names, size_t holes_listed) {
  Fragmentation f;
  f.time_ns = state.time_ns;
  f.cached_free_bytes = state.free_bytes();
  f.holes = state.holes.size();
  f.largest_hole_bytes = state.largest_hole_bytes();
  if (state.totals.reserved != 0) {
    f.ratio = static_cast<double>(f.cached_free_bytes) / static_cast<double>(state.totals.reserved);
  }
  f.peak_cost_bytes =
      model.reserved_peak.bytes - std::min(model.reserved_peak.bytes, model.allocated_peak.bytes);
  std::vector<Hole> order = state.holes;
  for (const Hole& hole : order) {
    const SegmentRange& segment = state.segments[hole.segment];
    const bool is_private = model.segment_changes[segment.change].pool != 0;
    if (hole.size_bytes == segment.size_bytes && !is_private) {
      f.releasable_bytes += hole.size_bytes;
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Hole& a, const Hole& b) { return a.size_bytes > b.size_bytes; });
  if (order.size() > holes_listed) order.resize(holes_listed);
  for (const Hole& hole : order) f.largest.push_back(pinned(model, state, hole, names));
  return f;
}

}  // namespace tidemark
