#include "analysis/history/block_map.h"

#include <algorithm>

namespace tidemark {

BlockMap::BlockMap(const AllocatorRules& rules) : rules_(rules) {}

uint32_t BlockMap::make_block(uint64_t address, uint64_t size, bool expandable) {
  const uint32_t index = blocks_.add({.address = address, .size = size, .expandable = expandable});
  by_address_.set(address, index);
  recent_ = 0;
  return index;
}

void BlockMap::forget(uint64_t address) {
  by_address_.erase(address);
  recent_ = 0;
}

void BlockMap::drop_block(uint32_t index) {
  Block& b = blocks_[index];
  if (by_address_.find(b.address) == index) forget(b.address);
  if (b.expandable && b.next == 0) range_end_.erase(b.address + b.size);
  blocks_.unlink(index);
  if (b.previous != 0 && b.next == 0) note_end(b.previous);
  b.use = BlockUse::kGone;
  blocks_.drop(index);
}

void BlockMap::note_end(uint32_t index) {
  const Block& b = blocks_[index];
  if (b.expandable) range_end_.set(b.address + b.size, index);
}

uint32_t BlockMap::split(uint32_t index, uint64_t size) {
  const Block front = blocks_[index];
  const uint32_t rest = make_block(front.address + size, front.size - size, front.expandable);
  blocks_[index].size = size;
  blocks_.link_after(rest, index);
  if (front.next == 0) note_end(rest);
  return rest;
}

void BlockMap::swallow_next(uint32_t index) {
  const uint32_t gone = blocks_[index].next;
  if (gone == 0) return;
  forget(blocks_[gone].address);
  blocks_.unlink(gone);
  blocks_[gone].use = BlockUse::kGone;
  blocks_.drop(gone);
  blocks_[index].size += blocks_[gone].size;
  if (blocks_[index].next == 0) note_end(index);
}

uint32_t BlockMap::merge_free(uint32_t index) {
  const uint32_t previous = blocks_[index].previous;
  if (previous != 0 && blocks_[previous].use == BlockUse::kFree &&
      blocks_[previous].next == index) {
    swallow_next(previous);
    index = previous;
  }
  const uint32_t next = blocks_[index].next;
  if (next != 0 && blocks_[next].use == BlockUse::kFree) swallow_next(index);
  return index;
}

void BlockMap::add_segment(uint64_t address, uint64_t size, bool joins_neighbours) {
  search_budget_ += 64;
  if (size == 0 || by_address_.find(address) != 0) {
    ++anomalies_;
    return;
  }
  totals_.reserved += size;
  const uint32_t index = make_block(address, size, joins_neighbours);
  if (!joins_neighbours) return;
  const uint32_t before = range_end_.find(address);
  const uint32_t behind = by_address_.find(address + size);
  if (before != 0) {
    range_end_.erase(address);
    blocks_[before].next = index;
    blocks_[index].previous = before;
  }
  if (behind != 0 && blocks_[behind].expandable && blocks_[behind].previous == 0) {
    blocks_[index].next = behind;
    blocks_[behind].previous = index;
  } else {
    note_end(index);
  }
  merge_free(index);
}

void BlockMap::remove_range(uint64_t address, uint64_t size) {
  search_budget_ += 64;
  uint32_t index = free_block_at(address);
  if (index == 0 || blocks_[index].size < size) {
    ++anomalies_;  // in use or not known: only the known free part is removed
    if (index == 0) return;
    size = blocks_[index].size;
  }
  if (blocks_[index].size > size) split(index, size);
  totals_.reserved -= std::min(totals_.reserved, size);
  // The neighbours now belong to different ranges.
  const uint32_t previous = blocks_[index].previous;
  const uint32_t next = blocks_[index].next;
  drop_block(index);
  if (previous != 0) {
    blocks_[previous].next = 0;
    note_end(previous);
  }
  if (next != 0) blocks_[next].previous = 0;
}

void BlockMap::split_free(uint64_t begin, uint64_t at) {
  const uint32_t index = by_address_.find(begin);
  if (index == 0 || blocks_[index].use != BlockUse::kFree) return;
  if (at > begin && at - begin < blocks_[index].size) split(index, at - begin);
}

uint32_t BlockMap::search_free_block(uint64_t address) {
  if (totals_.reserved == 0) return 0;  // the recorder saw no segments, so no block is free
  if (search_budget_ < blocks_.size()) return 0;
  search_budget_ -= blocks_.size();
  for (uint32_t i = 1; i < blocks_.size(); ++i) {
    const Block& b = blocks_[i];
    if (b.use == BlockUse::kFree && address >= b.address && address - b.address < b.size) return i;
  }
  return 0;
}

uint32_t BlockMap::free_block_at(uint64_t address) {
  uint32_t index = find(address);
  if (index != 0) return blocks_[index].use == BlockUse::kFree ? index : 0;
  index = search_free_block(address);
  if (index == 0) return 0;
  return split(index, address - blocks_[index].address);
}

uint32_t BlockMap::stray_block(uint64_t address, uint64_t size) {
  ++anomalies_;
  const uint32_t index = make_block(address, size, false);
  blocks_[index].stray = true;
  return index;
}

uint32_t BlockMap::allocate(uint64_t address, uint64_t requested, uint64_t size, uint32_t owner) {
  search_budget_ += 64;
  uint32_t index = find(address);
  if (index != 0 && blocks_[index].use != BlockUse::kFree) {
    ++anomalies_;  // its free was not recorded
    complete_free(address);
    index = 0;
  }
  const uint64_t wanted = size != 0 ? size : rules_.round(requested);
  if (index == 0) index = free_block_at(address);
  if (index == 0) {
    index = stray_block(address, wanted);
  } else if (blocks_[index].size < wanted) {
    ++anomalies_;
  } else if (size != 0 ? blocks_[index].size > wanted
                       : rules_.splits(wanted, blocks_[index].size)) {
    split(index, wanted);
  }
  Block& b = blocks_[index];
  b.use = BlockUse::kAllocated;
  b.requested = requested;
  b.owner = owner;
  totals_.allocated += b.size;
  totals_.active += b.size;
  totals_.requested += requested;
  return index;
}

uint32_t BlockMap::request_free(uint64_t address) {
  search_budget_ += 64;
  const uint32_t index = find(address);
  if (index == 0 || blocks_[index].use != BlockUse::kAllocated) return 0;
  blocks_[index].use = BlockUse::kPendingFree;
  totals_.allocated -= blocks_[index].size;
  return index;
}

uint32_t BlockMap::complete_free(uint64_t address) {
  search_budget_ += 64;
  const uint32_t index = find(address);
  if (index == 0 || blocks_[index].use == BlockUse::kFree) return 0;
  Block& b = blocks_[index];
  if (b.use == BlockUse::kAllocated) request_free(address);
  totals_.active -= b.size;
  totals_.requested -= b.requested;
  b.use = BlockUse::kFree;
  if (b.stray) {
    drop_block(index);
    return index;
  }
  merge_free(index);
  return index;
}

}  // namespace tidemark
