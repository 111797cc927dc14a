#include "analysis/history/seed.h"

#include <algorithm>

namespace tidemark {

void SeedState::add(const SegmentState& segment) {
  segments_[segment.address] = {segment.address,
                                segment.size_bytes,
                                segment.stream,
                                segment.stack,
                                segment.pool,
                                (segment.flags & kSegmentExpandable) != 0,
                                (segment.flags & kSegmentSmall) != 0};
}

void SeedState::add(const BlockState& block) {
  if (block.condition != BlockCondition::kAllocated &&
      block.condition != BlockCondition::kPendingFree) {
    return;
  }
  put_block({block.address, block.size_bytes, block.requested_bytes, block.stack,
             block.condition == BlockCondition::kPendingFree});
}

void SeedState::put_block(const SeedBlock& block) {
  if (uint32_t& index = block_at_.slot_of(block.address); index != 0) {
    blocks_[index] = block;
  } else {
    index = blocks_.add(block);
  }
}

// A snapshot shows neighbouring mapped ranges as one segment, so the range may be part of one; and
// what was mapped at once may have been unmapped in parts, so it may span several.
uint32_t SeedState::remove_segments(uint64_t address, uint64_t size) {
  const uint64_t end = size > UINT64_MAX - address ? UINT64_MAX : address + size;
  auto it = segments_.upper_bound(address);
  if (it != segments_.begin()) --it;
  uint32_t pool = 0;
  while (it != segments_.end() && it->second.address < end) {
    const SeedSegment whole = it->second;
    const uint64_t whole_end = whole.address + whole.size_bytes;
    if (whole_end <= address) {
      ++it;
      continue;
    }
    it = segments_.erase(it);
    pool = whole.pool;
    if (address > whole.address) {
      SeedSegment front = whole;
      front.size_bytes = address - whole.address;
      segments_[front.address] = front;
    }
    if (whole_end > end) {
      SeedSegment rest = whole;
      rest.address = end;
      rest.size_bytes = whole_end - end;
      segments_[rest.address] = rest;
    }
  }
  return pool;
}

uint32_t SeedState::take_pool_of_growth() {
  if (growth_pools_.empty()) return 0;
  const uint32_t pool = growth_pools_.back();
  growth_pools_.pop_back();
  return pool;
}

uint32_t SeedState::take_stack_of_allocation() {
  const uint64_t allocation = undone_allocations_--;
  if (end_stacks_.empty() || end_stacks_.back().allocation != allocation) return 0;
  const uint32_t stack = end_stacks_.back().stack;
  end_stacks_.pop_back();
  return stack;
}

void SeedState::undo(const FrameworkEvent& event) {
  switch (event.action) {
    case FrameworkAction::kAlloc:
      ++undone_allocations_;
      if (const uint32_t index = block_at_.erase(event.address); index != 0) {
        const uint32_t stack = blocks_[index].stack;
        if (stack != 0) end_stacks_.push_back({undone_allocations_, stack});
        blocks_.drop(index);
      }
      break;
    case FrameworkAction::kFreeCompleted:
      put_block({event.address, 0, event.size_bytes, 0, true});
      break;
    case FrameworkAction::kFreeRequested:
      if (const uint32_t index = block_at_.find(event.address); index != 0) {
        blocks_[index].pending_free = false;
      } else {
        put_block({event.address, 0, event.size_bytes, 0, false});
      }
      break;
    case FrameworkAction::kSegmentAlloc:
    case FrameworkAction::kSegmentMap:
      growth_pools_.push_back(remove_segments(event.address, event.size_bytes));
      break;
    case FrameworkAction::kSegmentFree:
    case FrameworkAction::kSegmentUnmap:
      remove_segments(event.address, event.size_bytes);
      segments_[event.address] = {event.address,
                                  event.size_bytes,
                                  event.stream,
                                  0,
                                  event.pool,
                                  event.action == FrameworkAction::kSegmentUnmap,
                                  event.size_bytes == 2 * kSmallBytes};
      break;
    default:
      break;
  }
}

// Ranges of an expandable segment that were mapped or unmapped one by one adjoin, and a block may
// span them.
uint64_t SeedState::end_of_range(uint64_t address, uint64_t limit) const {
  auto segment = segments_.upper_bound(address);
  if (segment == segments_.begin()) return limit;
  --segment;
  uint64_t end = segment->first + segment->second.size_bytes;
  if (end <= address) return limit;
  const bool expandable = segment->second.expandable;
  for (++segment; expandable && end < limit && segment != segments_.end(); ++segment) {
    if (segment->first != end || !segment->second.expandable) break;
    if (segment->second.size_bytes >= limit - end) return limit;
    end += segment->second.size_bytes;
  }
  return std::min(end, limit);
}

std::vector<SeedSegment> SeedState::segments() const {
  std::vector<SeedSegment> out;
  for (const auto& [address, segment] : segments_) out.push_back(segment);
  return out;
}

std::vector<SeedBlock> SeedState::blocks(const AllocatorRules& rules) const {
  std::vector<SeedBlock> out;
  block_at_.for_each([&](uint64_t, uint32_t index) { out.push_back(blocks_[index]); });
  std::sort(out.begin(), out.end(),
            [](const SeedBlock& a, const SeedBlock& b) { return a.address < b.address; });
  for (size_t i = 0; i < out.size(); ++i) {
    SeedBlock& block = out[i];
    if (block.size_bytes != 0) continue;
    // The space up to the next block or the end of the segment; the rules decide whether it was
    // split.
    const uint64_t limit = i + 1 < out.size() ? out[i + 1].address : UINT64_MAX;
    const uint64_t end = end_of_range(block.address, limit);
    const uint64_t space = end - block.address;
    const uint64_t rounded = rules.round(block.requested_bytes);
    const bool whole = space > rounded && end != UINT64_MAX && !rules.splits(rounded, space);
    block.size_bytes = whole ? space : std::min(rounded, space);
  }
  return out;
}

}  // namespace tidemark
