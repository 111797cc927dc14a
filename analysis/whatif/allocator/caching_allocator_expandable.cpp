// Expandable segments of the caching allocator: a wide range of addresses per stream and pool, in
// which pages are mapped as needed; unmapped blocks stay in the chain of their segment.
#include <algorithm>

#include "analysis/whatif/allocator/caching_allocator.h"

namespace tidemark {

void CachingAllocator::insert_unmapped(uint32_t index) {
  blocks_[index].state = State::kUnmapped;
  std::vector<uint32_t>& all = lists_[blocks_[index].list].unmapped;
  const auto at = std::partition_point(all.begin(), all.end(), [&](uint32_t other) {
    return blocks_[other].address < blocks_[index].address;
  });
  all.insert(at, index);
}

void CachingAllocator::erase_unmapped(uint32_t index) {
  std::erase(lists_[blocks_[index].list].unmapped, index);
}

uint64_t CachingAllocator::expandable_size(uint32_t index) const {
  const Block& b = blocks_[index];
  const bool grows = b.next != 0 && blocks_[b.next].state == State::kUnmapped;
  return b.size + (grows ? blocks_[b.next].size : 0);
}

// The first run of free and unmapped blocks that is large enough, else a new segment.
uint32_t CachingAllocator::find_expandable(uint32_t list, uint64_t size) {
  const auto usable = [&](uint32_t index) {
    return index != 0 &&
           (blocks_[index].state == State::kFree || blocks_[index].state == State::kUnmapped);
  };
  for (const uint32_t unmapped : lists_[list].unmapped) {
    const uint32_t before = blocks_[unmapped].previous;
    const uint32_t first = usable(before) ? before : unmapped;
    uint64_t space = 0;
    for (uint32_t i = first; space < size && usable(i); i = blocks_[i].next)
      space += blocks_[i].size;
    if (space >= size) return first;
  }
  const uint64_t page = small(lists_[list]) ? kSmallSegmentBytes : settings_.large_segment_bytes;
  const uint64_t wanted = std::max(limits_.expandable_range, size);
  const uint64_t range = (wanted + page - 1) / page * page;
  const uint64_t base = addresses_.reserve(range);
  segments_.push_back({base, range, page});
  const uint32_t block = make_block(base, range, list, static_cast<uint32_t>(segments_.size() - 1));
  insert_unmapped(block);
  return block;
}

// Maps whole pages from the start of an unmapped block, at least `size` bytes, and merges them with
// adjacent free blocks. False: the driver is out of memory.
bool CachingAllocator::map(uint32_t index, uint64_t size) {
  const Segment& segment = segments_[blocks_[index].segment];
  const uint64_t page = segment.page;
  const uint64_t offset = blocks_[index].address - segment.base;
  const uint64_t end = (offset + size + page - 1) / page * page;
  const uint64_t bytes = std::min(end - offset, blocks_[index].size);
  if (limits_.capacity != 0 && totals_.reserved + bytes > limits_.capacity) return false;
  erase_unmapped(index);
  blocks_[index].state = State::kFree;
  if (bytes < blocks_[index].size) {
    const Block whole = blocks_[index];
    const uint32_t rest =
        make_block(whole.address + bytes, whole.size - bytes, whole.list, whole.segment);
    blocks_.link_after(rest, index);
    blocks_[index].size = bytes;
    insert_unmapped(rest);
  }
  try_merge(index, blocks_[index].previous);
  try_merge(index, blocks_[index].next);
  insert_free(index);
  totals_.reserved += bytes;
  counts_.driver_allocations += bytes / page;
  return true;
}

uint32_t CachingAllocator::allocate_expandable(uint32_t list, uint64_t size) {
  uint32_t block = find_expandable(list, size);
  if (blocks_[block].state == State::kUnmapped && !map(block, std::min(blocks_[block].size, size)))
    return 0;
  while (blocks_[block].size < size) {
    const uint32_t next = blocks_[block].next;
    // Free neighbours are always merged, so it is unmapped, unless the recording is forged.
    if (next == 0 || blocks_[next].state != State::kUnmapped) return 0;
    if (!map(next, std::min(size - blocks_[block].size, blocks_[next].size))) return 0;
    block = next;
  }
  erase_free(block);
  return block;
}

// Unmaps the whole pages inside a free block; the parts before and after them stay.
void CachingAllocator::unmap(uint32_t index) {
  const Block whole = blocks_[index];
  const Segment segment = segments_[whole.segment];
  const uint64_t offset = whole.address - segment.base;
  const uint64_t begin = (offset + segment.page - 1) / segment.page * segment.page;
  const uint64_t end = (offset + whole.size) / segment.page * segment.page;
  if (begin >= end) return;
  erase_free(index);
  if (begin > offset) {
    const uint32_t before = make_block(whole.address, begin - offset, whole.list, whole.segment);
    blocks_.link_before(before, index);
    insert_free(before);
  }
  if (offset + whole.size > end) {
    const uint32_t behind =
        make_block(segment.base + end, offset + whole.size - end, whole.list, whole.segment);
    blocks_.link_after(behind, index);
    insert_free(behind);
  }
  Block& b = blocks_[index];
  b.address = segment.base + begin;
  b.size = end - begin;
  b.state = State::kUnmapped;
  try_merge(index, b.previous);
  try_merge(index, blocks_[index].next);
  insert_unmapped(index);
  totals_.reserved -= end - begin;
  counts_.driver_frees += (end - begin) / segment.page;
  if (blocks_[index].split()) return;
  erase_unmapped(index);  // nothing in it is mapped: its addresses are released too
  drop_block(index);
}

}  // namespace tidemark
