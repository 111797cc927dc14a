#include "analysis/stacked/group_totals.h"

#include <algorithm>

namespace tidemark {

GroupTotals::GroupTotals(const AllocationHistory& memory, const BlockGroups& groups)
    : memory_(&memory), groups_(&groups) {
  // One more for blocks in no known segment.
  const size_t each = size_t{groups.count} + 1;
  slots_ = groups.are_segments() ? 2 * each : each;
  constexpr size_t kEventsPerSlot = 16;
  spacing_ = static_cast<uint32_t>(
      std::clamp<size_t>(slots_ * kEventsPerSlot, AllocationHistory::kCell, UINT32_MAX / 2));
  std::vector<uint64_t> bytes(slots_);
  for (uint32_t e = 0; e < memory.event_count(); ++e) {
    if (e % spacing_ == 0) frames_.insert(frames_.end(), bytes.begin(), bytes.end());
    memory.passed(e);
    apply(e, bytes);
  }
  // Of the end, where a frame is due, and of an empty history.
  if (memory.event_count() % spacing_ == 0) {
    frames_.insert(frames_.end(), bytes.begin(), bytes.end());
  }
}

void GroupTotals::apply(uint32_t event, std::vector<uint64_t>& bytes) const {
  const uint32_t s = memory_->subject[event];
  const bool segments = groups_->are_segments();
  switch (memory_->change[event]) {
    case Change::kBirth:
      bytes[groups_->of(*memory_, s)] += memory_->allocations.block_bytes(s);
      break;
    case Change::kPending:
      if (segments) bytes[groups_->of(*memory_, s)] += memory_->allocations.block_bytes(s);
      break;
    case Change::kRelease:
      if (!segments) bytes[groups_->of(*memory_, s)] -= memory_->allocations.block_bytes(s);
      break;
    case Change::kDeath:
      if (segments) bytes[groups_->of(*memory_, s)] -= memory_->allocations.block_bytes(s);
      break;
    case Change::kGrow:
      if (segments) {
        bytes[groups_->count + 1 + groups_->of_change[s]] += memory_->segment_changes[s].size_bytes;
      }
      break;
    case Change::kShrink:
      if (segments) {
        bytes[groups_->count + 1 + groups_->of_change[s]] -= memory_->segment_changes[s].size_bytes;
      }
      break;
  }
}

void GroupTotals::Reader::to_frame(size_t frame) {
  const auto from = of_->frames_.begin() + static_cast<std::ptrdiff_t>(frame * of_->slots_);
  bytes_.assign(from, from + static_cast<std::ptrdiff_t>(of_->slots_));
  next_ = static_cast<uint32_t>(frame * of_->spacing_);
}

void GroupTotals::Reader::move_to(uint32_t event) {
  const uint32_t goal = std::min(event + 1, of_->memory_->event_count());
  const size_t frame = goal / of_->spacing_;
  if (goal < next_ || frame > next_ / of_->spacing_) to_frame(frame);
  for (; next_ < goal; ++next_) of_->apply(next_, bytes_);
}

}  // namespace tidemark
