#include "analysis/history/minmax_pyramid.h"

#include <algorithm>

namespace tidemark {

namespace {

CurveValues curves_of(const MemoryTotals& totals) {
  return {totals.allocated, totals.requested, totals.reserved};
}

size_t nodes_above(size_t nodes) {
  return (nodes + MinMaxPyramid::kFan - 1) / MinMaxPyramid::kFan;
}

size_t leaves_of(const AllocationHistory& model) {
  return (size_t{model.event_count()} + MinMaxPyramid::kLeaf - 1) / MinMaxPyramid::kLeaf;
}

}  // namespace

void add_upper_levels(AllocationHistory& model) {
  size_t begin = 0;
  for (size_t nodes = leaves_of(model); nodes > 1; nodes = nodes_above(nodes)) {
    for (size_t first = 0; first < nodes; first += MinMaxPyramid::kFan) {
      Extremes joined = Extremes::nothing();
      const size_t last = std::min(nodes, first + MinMaxPyramid::kFan);
      for (size_t i = first; i < last; ++i) joined.include(model.extremes[begin + i]);
      model.extremes.push_back(joined);
    }
    begin += nodes;
  }
}

size_t MinMaxPyramid::nodes_for(uint32_t events) {
  size_t sum = 0;
  size_t nodes = (size_t{events} + kLeaf - 1) / kLeaf;
  for (; nodes > 1; nodes = nodes_above(nodes)) sum += nodes;
  return sum + nodes;
}

MinMaxPyramid::MinMaxPyramid(const AllocationHistory& model) : model_(&model) {
  size_t begin = 0;
  for (size_t nodes = leaves_of(model); nodes > 0; nodes = nodes_above(nodes)) {
    levels_.push_back(begin);
    begin += nodes;
    if (nodes == 1) break;
  }
}

CurveValues MinMaxPyramid::values_after(uint32_t event) const {
  return curves_of(model_->totals_after(event));
}

void MinMaxPyramid::look_into(size_t leaf, Leaf& out) const {
  if (out.leaf == leaf) return;
  out.leaf = leaf;
  const auto first = static_cast<uint32_t>(leaf * kLeaf);
  out.count = std::min(model_->event_count() - first, kLeaf);
  MemoryTotals totals = model_->keyframes[leaf];
  out.before = curves_of(totals);
  for (uint32_t i = 0; i < out.count; ++i) {
    model_->apply(first + i, totals);
    out.after[i] = curves_of(totals);
  }
}

Extremes MinMaxPyramid::whole_leaves(size_t first, size_t last) const {
  Extremes out = Extremes::nothing();
  for (size_t level = 0; first < last; ++level) {
    const Extremes* const nodes = model_->extremes.data() + levels_[level];
    // Include single nodes up to the borders of the next level's nodes.
    for (; first < last && first % kFan != 0; ++first) out.include(nodes[first]);
    for (; first < last && last % kFan != 0; --last) out.include(nodes[last - 1]);
    first /= kFan;
    last /= kFan;
  }
  return out;
}

MinMaxPyramid::Edge MinMaxPyramid::edge(uint32_t event, Leaf& last) const {
  const uint32_t leaf = event / kLeaf;
  // The end of a history that fills its last leaf.
  if (leaf >= model_->keyframes.size()) return last_edge();
  look_into(leaf, last);
  Edge out;
  out.event = event;
  const uint32_t inside = event - leaf * kLeaf;
  for (uint32_t i = 0; i < last.count; ++i)
    (i < inside ? out.left : out.right).include(last.after[i]);
  out.before = inside == 0 ? last.before : last.after[inside - 1];
  return out;
}

MinMaxPyramid::Edge MinMaxPyramid::last_edge() const {
  Edge out;
  out.at_leaf = true;
  out.event = model_->event_count();
  if (out.event > 0) out.before = values_after(out.event - 1);
  return out;
}

MinMaxPyramid::Edge MinMaxPyramid::leaf_edge(size_t leaf) const {
  if (leaf >= model_->keyframes.size()) return last_edge();
  Edge out;
  out.at_leaf = true;
  out.event = static_cast<uint32_t>(leaf * kLeaf);
  out.before = curves_of(model_->keyframes[leaf]);
  return out;
}

MinMaxPyramid::Edge MinMaxPyramid::cell_edge(size_t cell) const {
  if (cell >= model_->cells.size()) return last_edge();
  Edge out;
  out.at_leaf = true;
  out.event = static_cast<uint32_t>(cell * AllocationHistory::kCell);
  out.before = model_->cells[cell].before;
  return out;
}

Extremes MinMaxPyramid::between(const Edge& first, const Edge& last, Leaf& looked_into) const {
  Extremes out = Extremes::nothing();
  size_t first_leaf = first.event / kLeaf;
  size_t last_leaf = last.event / kLeaf;
  if (first_leaf == last_leaf) {
    if (first.event == last.event) return out;
    look_into(first_leaf, looked_into);
    for (uint32_t e = first.event; e < last.event; ++e) {
      out.include(looked_into.after[e - first_leaf * kLeaf]);
    }
    return out;
  }
  if (!first.at_leaf) {
    out = first.right;
    ++first_leaf;
  }
  if (last.at_leaf) {
    last_leaf = (size_t{last.event} + kLeaf - 1) / kLeaf;  // the last leaf may be short
  } else {
    out.include(last.left);
  }
  out.include(whole_leaves(first_leaf, last_leaf));
  return out;
}

Extremes MinMaxPyramid::extremes(uint32_t first, uint32_t last) const {
  Leaf leaf;
  const Edge left = edge(first, leaf);
  return between(left, edge(last, leaf), leaf);
}

size_t MinMaxPyramid::memory_bytes() const {
  return model_->extremes.memory_bytes() + model_->keyframes.memory_bytes();
}

}  // namespace tidemark
