// Exact minimum and maximum totals over any range of events, for the curves of one device.
//
// Each leaf covers kLeaf events. The model keeps the totals before each leaf's first event, from
// which the few events at the ends of a range are replayed; levels that each join kFan nodes of the
// level below answer the rest. The levels are stored one after the other in
// AllocationHistory::extremes, leaves first: two bytes per event.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "analysis/columns/extremes.h"
#include "analysis/history/allocation_history.h"

namespace tidemark {

// Reads the model, which must outlive it. Any thread may use it.
class MinMaxPyramid {
 public:
  static constexpr uint32_t kLeaf = AllocationHistory::kKeyframe;
  static constexpr uint32_t kFan = 4;

  explicit MinMaxPyramid(const AllocationHistory& model);

  // The totals after one event.
  CurveValues values_after(uint32_t event) const;
  // Over the totals after each of the events [first, last); first < last <= event_count().
  Extremes extremes(uint32_t first, uint32_t last) const;

  // A border between two ranges of events, and the values on either side of it within its leaf.
  struct Edge {
    uint32_t event = 0;
    Extremes left = Extremes::nothing();   // from the leaf's first event to before `event`
    Extremes right = Extremes::nothing();  // from `event` to the leaf's last
    CurveValues before{};                  // totals before `event`
    bool at_leaf = false;                  // between two leaves: left and right are not set
  };
  // The totals after each event of the last leaf that was expanded: the next border is often in the
  // same one.
  struct Leaf {
    size_t leaf = SIZE_MAX;
    uint32_t count = 0;
    CurveValues before{};
    std::array<CurveValues, kLeaf> after{};
  };
  // 0 to event_count().
  Edge edge(uint32_t event, Leaf& last) const;
  // The border where a leaf or a cell of the model begins, or where the last one ends. No event is
  // read.
  Edge leaf_edge(size_t leaf) const;
  Edge cell_edge(size_t cell) const;
  // The same as extremes(first.event, last.event), for neighbouring ranges that share their edges.
  Extremes between(const Edge& first, const Edge& last, Leaf& looked_into) const;

  size_t memory_bytes() const;
  // The number of nodes of a history of this many events.
  static size_t nodes_for(uint32_t events);

 private:
  Extremes whole_leaves(size_t first, size_t last) const;
  void look_into(size_t leaf, Leaf& out) const;
  Edge last_edge() const;

  const AllocationHistory* model_;
  std::vector<size_t> levels_;  // start of each
};

// Appends the levels above the leaves.
void add_upper_levels(AllocationHistory& model);

}  // namespace tidemark
