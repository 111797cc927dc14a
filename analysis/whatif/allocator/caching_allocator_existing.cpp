// Memory that the allocator held before the first recorded request.
#include <algorithm>

#include "analysis/whatif/allocator/caching_allocator.h"

namespace tidemark {

// Creates the chain of used and free blocks of one range; returns its last block.
uint32_t CachingAllocator::fill_existing(const ExistingSegment& segment, uint32_t list,
                                         uint32_t segment_index, uint32_t previous) {
  const auto append = [&](uint64_t address, uint64_t size) {
    const uint32_t block = make_block(address, size, list, segment_index);
    if (previous != 0) blocks_.link_after(block, previous);
    return previous = block;
  };
  uint64_t at = segment.address;
  for (const ExistingBlock& b : segment.blocks) {
    if (b.address > at) insert_free(append(at, b.address - at));
    const uint32_t block = append(b.address, b.size);
    blocks_[block].state = State::kAllocated;
    blocks_[block].requested = b.requested;
    blocks_[block].id = b.id;
    if (b.id >= block_of_.size()) block_of_.resize(b.id + 1);
    block_of_[b.id] = block;
    totals_.allocated += b.size;
    totals_.active += b.size;
    totals_.requested += b.requested;
    at = b.address + b.size;
  }
  const uint64_t end = segment.address + segment.size;
  if (at < end) insert_free(append(at, end - at));
  totals_.reserved += segment.size;
  return previous;
}

void CachingAllocator::add_existing(const ExistingSegment& segment) {
  const uint32_t list = list_for(segment.stream, segment.pool, segment.small);
  if (segment.expandable) {
    add_existing_expandable(segment, list);
  } else {
    segments_.push_back({segment.address, segment.size, 0});
    fill_existing(segment, list, static_cast<uint32_t>(segments_.size() - 1), 0);
  }
  note_peaks();
}

// Mapped ranges of one stream and pool are in one segment unless they are too far apart; the space
// between and after them is not mapped.
void CachingAllocator::add_existing_expandable(const ExistingSegment& segment, uint32_t list) {
  const uint64_t page = segment.small ? kSmallSegmentBytes : settings_.large_segment_bytes;
  uint32_t previous = 0;
  uint32_t home = 0;
  if (!lists_[list].unmapped.empty()) {
    const uint32_t tail = lists_[list].unmapped.back();
    const Block gap = blocks_[tail];
    if (segment.address >= gap.address &&
        segment.address + segment.size <= gap.address + gap.size) {
      home = gap.segment;
      previous = gap.previous;
      erase_unmapped(tail);
      blocks_[previous].next = 0;
      drop_block(tail);
      if (segment.address > gap.address) {
        const uint32_t between = make_block(gap.address, segment.address - gap.address, list, home);
        blocks_.link_after(between, previous);
        insert_unmapped(between);
        previous = between;
      }
    }
  }
  if (previous == 0) {
    const uint64_t range = std::max(limits_.expandable_range / page * page, segment.size + page);
    segments_.push_back({segment.address, range, page});
    home = static_cast<uint32_t>(segments_.size() - 1);
  }
  const uint32_t last = fill_existing(segment, list, home, previous);
  const uint64_t end = segment.address + segment.size;
  const uint64_t limit = segments_[home].base + segments_[home].size;
  const uint32_t tail = make_block(end, limit - end, list, home);
  blocks_.link_after(tail, last);
  insert_unmapped(tail);
}

}  // namespace tidemark
