#include "analysis/stacked/column_samples.h"

#include <algorithm>

namespace tidemark {

namespace {

constexpr uint32_t kLeaf = MinMaxPyramid::kLeaf;
constexpr uint32_t kFan = MinMaxPyramid::kFan;

uint64_t value_of(const MemoryTotals& totals, Curve curve) {
  return curve == Curve::kAllocated   ? totals.allocated
         : curve == Curve::kRequested ? totals.requested
                                      : totals.reserved;
}

// Finds the first event of a range after which a curve is highest, in the tree of
// analysis/history/minmax_pyramid.h.
class HighestEvent {
 public:
  struct Found {
    uint32_t event = kNoSample;
    uint64_t bytes = 0;
  };

  HighestEvent(const AllocationHistory& memory, Curve curve) : memory_(&memory), curve_(curve) {
    size_t begin = 0;
    for (size_t nodes = (size_t{memory.event_count()} + kLeaf - 1) / kLeaf; nodes > 0;
         nodes = (nodes + kFan - 1) / kFan) {
      levels_.push_back({begin, nodes});
      begin += nodes;
      if (nodes == 1) break;
    }
  }

  Found in(uint32_t first, uint32_t last) const {
    Found best;
    const uint32_t first_whole = (first + kLeaf - 1) / kLeaf;
    const uint32_t last_whole = last / kLeaf;
    if (first_whole >= last_whole) {  // no whole leaf
      for (uint32_t e = first; e < last;) {
        const uint32_t end = std::min(last, (e / kLeaf + 1) * kLeaf);
        look_at(e, end, best);
        e = end;
      }
      return best;
    }
    if (first < first_whole * kLeaf) look_at(first, first_whole * kLeaf, best);
    look_at_leaves(first_whole, last_whole, best);
    if (last_whole * kLeaf < last) look_at(last_whole * kLeaf, last, best);
    return best;
  }

 private:
  struct Level {
    size_t begin = 0;
    size_t nodes = 0;
  };

  uint64_t max_of(size_t level, size_t node) const {
    return memory_->extremes[levels_[level].begin + node].max[static_cast<size_t>(curve_)];
  }

  // Events of one leaf.
  void look_at(uint32_t first, uint32_t last, Found& best) const {
    const uint32_t leaf = first / kLeaf;
    MemoryTotals totals = memory_->keyframes[leaf];
    for (uint32_t e = leaf * kLeaf; e < last; ++e) {
      memory_->apply(e, totals);
      const uint64_t bytes = value_of(totals, curve_);
      if (e < first || (best.event != kNoSample && bytes <= best.bytes)) continue;
      best = {e, bytes};
    }
  }

  void look_at_leaves(size_t first, size_t last, Found& best) const {
    size_t best_level = SIZE_MAX;
    size_t best_node = 0;
    uint64_t most = best.bytes;
    bool any = best.event != kNoSample;
    const auto consider = [&](size_t level, size_t node) {
      const uint64_t bytes = max_of(level, node);
      if (any && bytes <= most) {
        // Of equal ones the earliest; nodes are not considered in their order.
        const bool earlier = best_level != SIZE_MAX && bytes == most &&
                             begin_of(level, node) < begin_of(best_level, best_node);
        if (!earlier) return;
      }
      any = true;
      most = bytes;
      best_level = level;
      best_node = node;
    };
    for (size_t level = 0; first < last; ++level) {
      for (; first < last && first % kFan != 0; ++first) consider(level, first);
      for (; first < last && last % kFan != 0; --last) consider(level, last - 1);
      first /= kFan;
      last /= kFan;
    }
    if (best_level == SIZE_MAX) return;
    for (; best_level > 0; --best_level) {
      size_t child = best_node * kFan;
      while (max_of(best_level - 1, child) != most) ++child;
      best_node = child;
    }
    const auto begin = static_cast<uint32_t>(best_node * kLeaf);
    look_at(begin, std::min(begin + kLeaf, memory_->event_count()), best);
  }

  static size_t begin_of(size_t level, size_t node) {
    for (; level > 0; --level) node *= kFan;
    return node;
  }

  const AllocationHistory* memory_;
  Curve curve_;
  std::vector<Level> levels_;
};

}  // namespace

ColumnSamples highest_in_columns(const AllocationHistory& memory, Curve curve,
                                 std::vector<uint32_t> edges) {
  ColumnSamples out;
  const size_t count = edges.empty() ? 0 : edges.size() - 1;
  out.events.resize(count, kNoSample);
  out.bytes.resize(count);
  const HighestEvent highest(memory, curve);
  uint32_t carried_at = kNoSample;  // whose value `carried` is
  uint64_t carried = 0;
  for (size_t i = 0; i < count; ++i) {
    if (edges[i + 1] == 0) continue;
    if (edges[i] > 0 && carried_at != edges[i] - 1) {
      carried_at = edges[i] - 1;
      carried = value_of(memory.totals_after(carried_at), curve);
    }
    const HighestEvent::Found own =
        edges[i] < edges[i + 1] ? highest.in(edges[i], edges[i + 1]) : HighestEvent::Found{};
    const bool before = edges[i] > 0 && (own.event == kNoSample || carried >= own.bytes);
    out.events[i] = before ? carried_at : own.event;
    out.bytes[i] = before ? carried : own.bytes;
  }
  out.edges = std::move(edges);
  return out;
}

}  // namespace tidemark
