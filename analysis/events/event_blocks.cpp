#include "analysis/events/event_blocks.h"

#include <utility>

namespace tidemark {

EventBlocks::EventBlocks(const TraceReader& reader, std::vector<BlockRef> refs, bool ahead,
                         Columns columns, EventWatch watch)
    : reader_(reader), refs_(std::move(refs)), columns_(columns), watch_(std::move(watch)) {
  for (size_t i = 0; i < (ahead ? kSlots : 1); ++i) {
    slots_.push_back(std::make_unique<Slot>(reader));
  }
  if (ahead) thread_ = std::thread([this] { decode_all(); });
}

EventBlocks::~EventBlocks() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::span<const FrameworkEvent> EventBlocks::decode(BlockDecoder& decoder,
                                                    const BlockRef& ref) const {
  const auto rows = rows_of(decoder, ref);
  if (watch_) watch_(reader_, ref, rows);
  return rows;
}

std::span<const FrameworkEvent> EventBlocks::rows_of(BlockDecoder& decoder,
                                                     const BlockRef& ref) const {
  using E = FrameworkEvent;
  if (columns_ == Columns::kAll) return decoder.rows<E>(ref);
  return decoder.rows<E, &E::time_ns, &E::address, &E::size_bytes, &E::stream, &E::device, &E::pool,
                      &E::action>(ref);
}

void EventBlocks::decode_all() {
  try {
    for (size_t i = 0; i < refs_.size(); ++i) {
      {
        // The caller is still reading the last block.
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || i + 1 < taken_ + kSlots; });
        if (stop_) return;
      }
      Slot& slot = *slots_[i % kSlots];
      slot.rows = decode(slot.decoder, refs_[i]);
      {
        const std::lock_guard lock(mutex_);
        decoded_ = i + 1;
      }
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

std::span<const FrameworkEvent> EventBlocks::next() {
  if (!thread_.joinable()) {
    return decode(slots_.front()->decoder, refs_[taken_++]);
  }
  std::unique_lock lock(mutex_);
  const size_t wanted = taken_++;
  changed_.notify_all();
  changed_.wait(lock, [&] { return failure_ != nullptr || decoded_ > wanted; });
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  return slots_[wanted % kSlots]->rows;
}

Damage EventBlocks::damage() const {
  Damage sum;
  for (const auto& slot : slots_) sum += slot->decoder.damage();
  return sum;
}

}  // namespace tidemark
