#include "analysis/minmax_pyramid.h"

#include <algorithm>
#include <limits>

namespace tidemark {

namespace {

uint64_t& at(CurveValues& values, Curve curve) {
  return values[static_cast<size_t>(curve)];
}

void apply(const FrameworkModel& model, uint32_t event, CurveValues& totals) {
  const uint32_t s = model.subject[event];
  switch (model.change[event]) {
    case Change::kBirth:
      at(totals, Curve::kAllocated) += model.allocations[s].block_bytes;
      at(totals, Curve::kRequested) += model.allocations[s].requested_bytes;
      break;
    case Change::kRelease:
      at(totals, Curve::kAllocated) -= model.allocations[s].block_bytes;
      break;
    case Change::kDeath:
      at(totals, Curve::kRequested) -= model.allocations[s].requested_bytes;
      break;
    case Change::kGrow:
      at(totals, Curve::kReserved) += model.segment_changes[s].size_bytes;
      break;
    case Change::kShrink:
      at(totals, Curve::kReserved) -= model.segment_changes[s].size_bytes;
      break;
  }
}

}  // namespace

Extremes Extremes::nothing() {
  Extremes e;
  e.min.fill(std::numeric_limits<uint64_t>::max());
  return e;
}

void Extremes::include(const CurveValues& values) {
  for (size_t c = 0; c < kCurves; ++c) {
    min[c] = std::min(min[c], values[c]);
    max[c] = std::max(max[c], values[c]);
  }
}

void Extremes::include(const Extremes& other) {
  for (size_t c = 0; c < kCurves; ++c) {
    min[c] = std::min(min[c], other.min[c]);
    max[c] = std::max(max[c], other.max[c]);
  }
}

MinMaxPyramid::MinMaxPyramid(const FrameworkModel& model) : model_(&model) {
  const uint32_t events = model.event_count();
  const size_t leaves = (size_t{events} + kLeaf - 1) / kLeaf;
  before_.resize(leaves);
  levels_.emplace_back(leaves, Extremes::nothing());
  CurveValues totals{};
  for (uint32_t e = 0; e < events; ++e) {
    if (e % kLeaf == 0) before_[e / kLeaf] = totals;
    apply(model, e, totals);
    levels_[0][e / kLeaf].include(totals);
  }
  while (levels_.back().size() > 1) {
    const std::vector<Extremes>& below = levels_.back();
    std::vector<Extremes> level((below.size() + kFan - 1) / kFan, Extremes::nothing());
    for (size_t i = 0; i < below.size(); ++i) level[i / kFan].include(below[i]);
    levels_.push_back(std::move(level));
  }
}

CurveValues MinMaxPyramid::values_after(uint32_t event) const {
  const uint32_t leaf = event / kLeaf;
  CurveValues totals = before_[leaf];
  for (uint32_t e = leaf * kLeaf; e <= event; ++e) apply(*model_, e, totals);
  return totals;
}

// Events [first, last), all in one leaf.
void MinMaxPyramid::replay(uint32_t first, uint32_t last, Extremes& out) const {
  const uint32_t leaf = first / kLeaf;
  CurveValues totals = before_[leaf];
  for (uint32_t e = leaf * kLeaf; e < last; ++e) {
    apply(*model_, e, totals);
    if (e >= first) out.include(totals);
  }
}

Extremes MinMaxPyramid::whole_leaves(size_t first, size_t last) const {
  Extremes out = Extremes::nothing();
  for (size_t level = 0; first < last; ++level) {
    const std::vector<Extremes>& nodes = levels_[level];
    // Take single nodes up to the borders of the next level's nodes.
    for (; first < last && first % kFan != 0; ++first) out.include(nodes[first]);
    for (; first < last && last % kFan != 0; --last) out.include(nodes[last - 1]);
    first /= kFan;
    last /= kFan;
  }
  return out;
}

MinMaxPyramid::Edge MinMaxPyramid::edge(uint32_t event) const {
  Edge out;
  out.event = event;
  const uint32_t leaf = event / kLeaf;
  const uint32_t end = std::min(model_->event_count(), (leaf + 1) * kLeaf);
  if (leaf >= before_.size()) {  // the end of a history that fills its last leaf
    if (event > 0) out.before = values_after(event - 1);
    return out;
  }
  CurveValues totals = before_[leaf];
  out.before = totals;
  for (uint32_t e = leaf * kLeaf; e < end; ++e) {
    apply(*model_, e, totals);
    (e < event ? out.left : out.right).include(totals);
    if (e + 1 == event) out.before = totals;
  }
  return out;
}

Extremes MinMaxPyramid::between(const Edge& first, const Edge& last) const {
  Extremes out = Extremes::nothing();
  const uint32_t first_leaf = first.event / kLeaf;
  const uint32_t last_leaf = last.event / kLeaf;
  if (first_leaf == last_leaf) {
    if (first.event < last.event) replay(first.event, last.event, out);
    return out;
  }
  out = first.right;
  out.include(last.left);
  out.include(whole_leaves(size_t{first_leaf} + 1, last_leaf));
  return out;
}

Extremes MinMaxPyramid::extremes(uint32_t first, uint32_t last) const {
  return between(edge(first), edge(last));
}

size_t MinMaxPyramid::memory_bytes() const {
  size_t bytes = before_.capacity() * sizeof(CurveValues);
  for (const auto& level : levels_) bytes += level.capacity() * sizeof(Extremes);
  return bytes;
}

}  // namespace tidemark
