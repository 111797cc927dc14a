#include "analysis/stacked/block_groups.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

namespace tidemark {

BlockGroups category_groups() {
  BlockGroups groups;
  groups.count = static_cast<uint32_t>(kCategoryOrder.size());
  groups.of_category.assign(size_t{UINT8_MAX} + 1, groups.count - 1);
  for (uint32_t g = 0; g < groups.count; ++g) {
    groups.of_category[static_cast<size_t>(kCategoryOrder[g])] = g;
  }
  return groups;
}

BlockGroups one_group(const AllocationHistory& memory) {
  BlockGroups groups;
  groups.count = 1;
  groups.of_kind.assign(std::max<size_t>(memory.allocations.kinds().size(), 1), 0);
  return groups;
}

namespace {

// The reserved ranges, and to which segment change each goes back.
class Segments {
 public:
  explicit Segments(size_t changes) : parent_(changes) {
    std::iota(parent_.begin(), parent_.end(), 0U);
  }

  // The row whose range has the address; none: UINT32_MAX.
  uint32_t at(uint64_t address) const {
    const auto next = ranges_.upper_bound(address);
    if (next == ranges_.begin()) return UINT32_MAX;
    const Range& range = std::prev(next)->second;
    return address < range.end ? range.row : UINT32_MAX;
  }
  void grow(const SegmentChange& c, uint32_t row) {
    if (c.expandable) {
      const auto next = ranges_.lower_bound(c.address);
      if (next != ranges_.end() && next->second.expandable &&
          next->first == c.address + c.size_bytes) {
        join(row, next->second.row);
      }
      if (next != ranges_.begin()) {
        const Range& before = std::prev(next)->second;
        if (before.expandable && before.end == c.address) join(row, before.row);
      }
    }
    ranges_[c.address] = {c.address + c.size_bytes, row, c.expandable};
  }
  // Takes the bytes away, from several ranges where the segment was mapped piece by piece.
  void shrink(const SegmentChange& c, uint32_t row) {
    uint64_t at = c.address;
    const uint64_t end = c.address + c.size_bytes;
    bool first = true;
    while (at < end) {
      auto it = ranges_.upper_bound(at);
      if (it == ranges_.begin()) break;
      --it;
      const auto [begin, range] = *it;
      if (at >= range.end) break;
      if (std::exchange(first, false)) parent_[row] = root(range.row);
      ranges_.erase(it);
      if (begin < at) ranges_[begin] = {at, range.row, range.expandable};
      if (end < range.end) ranges_[end] = {range.end, range.row, range.expandable};
      at = range.end;
    }
  }
  uint32_t root(uint32_t row) {
    while (parent_[row] != row) row = parent_[row] = parent_[parent_[row]];
    return row;
  }

 private:
  struct Range {
    uint64_t end = 0;
    uint32_t row = 0;
    bool expandable = false;
  };

  // The earlier one remains.
  void join(uint32_t a, uint32_t b) {
    a = root(a);
    b = root(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

  std::map<uint64_t, Range> ranges_;
  std::vector<uint32_t> parent_;
};

}  // namespace

BlockGroups segment_groups(const AllocationHistory& memory) {
  BlockGroups groups;
  const size_t changes = memory.segment_changes.size();
  Segments segments(changes);
  groups.of_block.assign(memory.allocations.size(), UINT32_MAX);
  for (uint32_t e = 0; e < memory.event_count(); ++e) {
    memory.passed(e);
    const uint32_t s = memory.subject[e];
    switch (memory.change[e]) {
      case Change::kGrow:
        segments.grow(memory.segment_changes[s], s);
        break;
      case Change::kShrink:
        segments.shrink(memory.segment_changes[s], s);
        break;
      case Change::kBirth:
      case Change::kPending:
        groups.of_block[s] = segments.at(memory.allocations.address(s));
        break;
      case Change::kRelease:
      case Change::kDeath:
        break;
    }
  }
  std::vector<uint32_t> number(changes, UINT32_MAX);
  groups.of_change.resize(changes);
  for (uint32_t row = 0; row < changes; ++row) {
    const uint32_t root = segments.root(row);
    if (number[root] == UINT32_MAX) number[root] = groups.count++;
    groups.of_change[row] = number[root];
  }
  for (uint32_t& row : groups.of_block) {
    row = row == UINT32_MAX ? groups.count : groups.of_change[row];
  }
  return groups;
}

}  // namespace tidemark
