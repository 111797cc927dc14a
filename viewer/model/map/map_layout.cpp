#include "viewer/model/map/map_layout.h"

#include <algorithm>
#include <numeric>

namespace tidemark::view {

namespace {

constexpr float kNarrowPx = 1.5F;

// Merges narrow cells until they are wide enough to see.
class Folder {
 public:
  explicit Folder(std::vector<MapCell>& out) : out_(out) {}

  void add(const MapCell& cell) {
    if (cell.end_px - cell.begin_px >= kNarrowPx) {
      close();
      out_.push_back(cell);
      return;
    }
    if (count_ == 0) {
      fold_ = cell;
      largest_ = cell.kind == CellKind::kBlock ? cell.size_bytes : 0;
    } else {
      fold_.end_px = cell.end_px;
      fold_.size_bytes += cell.size_bytes;
      fold_.used_bytes += cell.used_bytes;
      fold_.blocks += cell.blocks;
      if (cell.kind == CellKind::kBlock && cell.size_bytes > largest_) {
        largest_ = cell.size_bytes;
        fold_.allocation = cell.allocation;
      }
    }
    ++count_;
    if (fold_.end_px - fold_.begin_px >= kNarrowPx) close();
  }

  void close() {
    if (count_ > 1) fold_.kind = fold_.blocks == 0 ? CellKind::kHole : CellKind::kFolded;
    if (count_ > 0) out_.push_back(fold_);
    count_ = 0;
  }

 private:
  std::vector<MapCell>& out_;
  MapCell fold_;
  uint64_t largest_ = 0;
  uint32_t count_ = 0;
};

}  // namespace

MapLayout::MapLayout(const AllocationHistory& model, const MemoryState& state)
    : model_(&model), state_(&state) {
  live_.clear();
  holes_.clear();
  uint32_t live = 0;
  uint32_t hole = 0;
  for (uint32_t s = 0; s < state.segments.size(); ++s) {
    const SegmentRange& segment = state.segments[s];
    const uint64_t end = segment.address + segment.size_bytes;
    while (live < state.live.size() &&
           model.allocations.address(state.live[live]) < segment.address) {
      ++live;  // in no known segment
    }
    live_.push_back(live);
    uint64_t used = 0;
    for (; live < state.live.size() && model.allocations.address(state.live[live]) < end; ++live) {
      used += model.allocations.block_bytes(state.live[live]);
    }
    used_.push_back(used);
    blocks_.push_back(live - live_.back());
    holes_.push_back(hole);
    while (hole < state.holes.size() && state.holes[hole].segment == s) ++hole;
    largest_segment_ = std::max(largest_segment_, segment.size_bytes);
  }
  live_.push_back(live);
  holes_.push_back(hole);
}

std::vector<uint32_t> MapLayout::rows(RowOrder order) const {
  std::vector<uint32_t> rows(used_.size());
  std::iota(rows.begin(), rows.end(), 0U);
  const auto size = [&](uint32_t s) { return state_->segments[s].size_bytes; };
  const auto free = [&](uint32_t s) { return size(s) - std::min(size(s), used_[s]); };
  if (order == RowOrder::kSize) {
    std::stable_sort(rows.begin(), rows.end(),
                     [&](uint32_t a, uint32_t b) { return size(a) > size(b); });
  } else if (order == RowOrder::kFree) {
    std::stable_sort(rows.begin(), rows.end(),
                     [&](uint32_t a, uint32_t b) { return free(a) > free(b); });
  }
  return rows;
}

std::vector<MapCell> MapLayout::cells(uint32_t segment, float width_px) const {
  std::vector<MapCell> cells;
  Folder folder(cells);
  const SegmentRange& range = state_->segments[segment];
  const double scale =
      range.size_bytes == 0 ? 0 : double{width_px} / static_cast<double>(range.size_bytes);
  const auto px = [&](uint64_t address) {
    return static_cast<float>(static_cast<double>(address - range.address) * scale);
  };
  uint32_t hole = holes_[segment];
  const uint32_t hole_end = holes_[segment + 1];
  uint64_t at = range.address;
  // A live block may begin anywhere in [live_[segment], next); between them may be blocks that
  // belong to no segment.
  for (uint32_t i = live_[segment]; at < range.address + range.size_bytes;) {
    if (hole < hole_end && state_->holes[hole].address == at) {
      const Hole& h = state_->holes[hole++];
      folder.add({px(at), px(at + h.size_bytes), CellKind::kHole, 0, at, h.size_bytes, 0, 0});
      at += h.size_bytes;
      continue;
    }
    if (i >= live_[segment + 1]) break;
    const uint32_t row = state_->live[i++];
    const uint64_t address = model_->allocations.address(row);
    if (address < at) continue;  // overlaps the previous one: the history contradicts itself
    const uint64_t end =
        std::min(address + model_->allocations.block_bytes(row), range.address + range.size_bytes);
    if (address >= end) break;
    folder.add(
        {px(address), px(end), CellKind::kBlock, row, address, end - address, end - address, 1});
    at = end;
  }
  folder.close();
  return cells;
}

uint64_t MapLayout::largest_hole(uint32_t segment) const {
  uint64_t largest = 0;
  for (uint32_t h = holes_[segment]; h < holes_[segment + 1]; ++h) {
    largest = std::max(largest, state_->holes[h].size_bytes);
  }
  return largest;
}

int64_t MapLayout::segment_of(uint64_t address) const {
  const auto& segments = state_->segments;
  const auto after =
      std::upper_bound(segments.begin(), segments.end(), address,
                       [](uint64_t a, const SegmentRange& s) { return a < s.address; });
  if (after == segments.begin()) return -1;
  const SegmentRange& s = *std::prev(after);
  return address - s.address < s.size_bytes ? (after - segments.begin()) - 1 : -1;
}

MapLayout::HolePlace MapLayout::hole_at(uint64_t address) const {
  HolePlace place;
  const auto& holes = state_->holes;
  const auto after = std::upper_bound(holes.begin(), holes.end(), address,
                                      [](uint64_t a, const Hole& h) { return a < h.address; });
  if (after == holes.begin()) return place;
  const Hole& hole = *std::prev(after);
  if (address - hole.address >= hole.size_bytes) return place;
  place.address = hole.address;
  place.size_bytes = hole.size_bytes;
  place.segment = hole.segment;
  const auto& live = state_->live;
  const SegmentRange& range = state_->segments[hole.segment];
  const auto next = std::partition_point(live.begin(), live.end(), [&](uint32_t i) {
    return model_->allocations[i].address < hole.address;
  });
  if (next != live.begin() && model_->allocations[*std::prev(next)].address >= range.address) {
    place.before = *std::prev(next);
  }
  if (next != live.end() && model_->allocations[*next].address < range.address + range.size_bytes) {
    place.after = *next;
  }
  return place;
}

MapLayout::Neighbours MapLayout::neighbours(uint32_t allocation) const {
  Neighbours n;
  const Allocation& a = model_->allocations[allocation];
  const int64_t segment = segment_of(a.address);
  if (segment < 0) return n;
  const SegmentRange& range = state_->segments[static_cast<size_t>(segment)];
  const auto begin = state_->live.begin() + live_[static_cast<size_t>(segment)];
  const auto end = state_->live.begin() + live_[static_cast<size_t>(segment) + 1];
  const auto it = std::find(begin, end, allocation);
  if (it == end) return n;
  uint64_t left = range.address;
  if (it != begin) {
    n.before = *std::prev(it);
    left = model_->allocations[n.before].address + model_->allocations[n.before].block_bytes;
  }
  uint64_t right = range.address + range.size_bytes;
  if (std::next(it) != end) {
    const uint32_t next = *std::next(it);
    // Blocks past the segment's end belong to no segment.
    if (model_->allocations[next].address < right) {
      n.after = next;
      right = model_->allocations[next].address;
    }
  }
  n.hole_before = a.address - std::min(left, a.address);
  const uint64_t own_end = a.address + a.block_bytes;
  n.hole_after = right - std::min(own_end, right);
  return n;
}

}  // namespace tidemark::view
