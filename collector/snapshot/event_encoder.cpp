#include "collector/snapshot/event_encoder.h"

#include <cstring>
#include <utility>

#include "proto/base/work.h"

namespace tidemark {

namespace {
constexpr size_t kMostWaiting = 4;  // batches; bounds memory if encoding is slower
}

EventEncoder::EventEncoder() {
  batch_.reserve(Table<FrameworkEvent>::block_rows);
  if (!kInBrowser) worker_ = std::thread([this] { work(); });
}

EventEncoder::~EventEncoder() {
  stop();
}

void EventEncoder::encode(const Batch& batch) {
  const auto frame = encoder_.encode(std::span<const FrameworkEvent>(batch), 1, 0);
  failed_ |= frame.empty();
  frames_.insert(frames_.end(), frame.begin(), frame.end());
}

void EventEncoder::hand_over() {
  if (!worker_.joinable()) {
    encode(batch_);
    batch_.clear();
    return;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return full_.size() < kMostWaiting; });
  full_.push_back(std::move(batch_));
  batch_ = Batch();
  if (!empty_.empty()) {
    batch_ = std::move(empty_.back());
    empty_.pop_back();
  }
  lock.unlock();
  changed_.notify_all();
  batch_.clear();
  batch_.reserve(Table<FrameworkEvent>::block_rows);
}

void EventEncoder::work() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || !full_.empty(); });
    if (full_.empty()) return;
    Batch batch = std::move(full_.front());
    full_.pop_front();
    lock.unlock();
    changed_.notify_all();
    encode(batch);
    lock.lock();
    empty_.push_back(std::move(batch));
  }
}

void EventEncoder::stop() {
  if (!worker_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  worker_.join();
}

bool EventEncoder::finish(TraceWriter& writer) {
  if (!batch_.empty()) hand_over();
  stop();
  for (size_t at = 0; at < frames_.size();) {
    FrameHeader header;
    std::memcpy(&header, frames_.data() + at, sizeof header);
    header.sequence = writer.next_sequence();
    const std::span<const uint8_t> payload(frames_.data() + at + sizeof header,
                                           header.stored_bytes);
    writer.copy_frame(header, payload, header.process);
    at += sizeof header + header.stored_bytes;
  }
  return !failed_;
}

}  // namespace tidemark
