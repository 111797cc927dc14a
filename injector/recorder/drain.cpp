#include "injector/recorder/drain.h"

#include <time.h>

#include <algorithm>
#include <cstring>

#include "injector/process/complain.h"
#include "proto/base/pages.h"
#include "proto/column_codec.h"

namespace tidemark::injector {

namespace {

std::atomic_flag said_write_failed;
std::atomic_flag said_lost;
constexpr uint64_t kLeastRatio = 2;  // of the compression of records

}  // namespace

Drain::Drain(Session& session) noexcept
    : session_(session), arena_(session.arena), trace_(session.file) {
  const size_t chunks = arena_.chunk_count();
  collected_ = static_cast<uint64_t*>(map_pages(chunks * sizeof *collected_));
  given_back_ = static_cast<uint32_t*>(map_pages(chunks * sizeof *given_back_));
  pending_ = static_cast<Pending*>(map_pages(chunks * sizeof *pending_));
  failed_ =
      collected_ == nullptr || given_back_ == nullptr || pending_ == nullptr || trace_.failed();
  if (!failed_ && session.options.keeps_window()) make_window();
  if (!failed_) checkpoint();
}

Drain::~Drain() {
  const size_t chunks = arena_.chunk_count();
  unmap_pages(collected_, chunks * sizeof *collected_);
  unmap_pages(given_back_, chunks * sizeof *given_back_);
  unmap_pages(pending_, chunks * sizeof *pending_);
  if (window_ != nullptr) window_->~Window();
  unmap_pages(window_, sizeof *window_);
  unmap_pages(board_, sizeof *board_);
}

// Keeps the order of a thread's records. Of two chunks of one thread, the first was sealed before
// the second drew its sequence number. Numbers below `limit` were drawn before any commit word was
// read here, so if the second chunk is pending, all of the first is visible, and sorting by number
// keeps the thread's order.
uint32_t Drain::find_pending() noexcept {
  const uint64_t limit = arena_.next_sequence();
  const uint32_t end = arena_.high_water();
  uint32_t count = 0;
  for (uint32_t chunk = 0; chunk < end; ++chunk) {
    auto& control = arena_.control(chunk);
    const uint64_t word =
        std::atomic_ref(control.commit).load(std::memory_order_acquire) & ~ring::kSealed;
    if (word == collected_[chunk] || ring::bytes_of(word) == 0) continue;
    const uint64_t sequence = std::atomic_ref(control.sequence).load(std::memory_order_relaxed);
    if (sequence < limit) pending_[count++] = {sequence, word, chunk};
  }
  std::sort(pending_, pending_ + count,
            [](const Pending& x, const Pending& y) { return x.sequence < y.sequence; });
  return count;
}

uint64_t Drain::collect() noexcept {
  if (failed_) return 0;
  const uint32_t count = find_pending();
  if (arena_.lost()) return 0;  // the commit words may be those of empty memory
  uint64_t records = 0;
  if (window_ != nullptr) window_->begin_round(now_ns());
  for (uint32_t i = 0; i < count; ++i) {
    if (window_ != nullptr) keep_window(false, arena_.chunk_bytes() / kLeastRatio);
    records += collect_chunk(pending_[i]);
  }
  if (window_ != nullptr) {
    window_->end_round();
    keep_window(true, 0);
  }
  return records;
}

template <typename Row>
void Drain::note_memory() noexcept {
  const uint64_t bit = 1ULL << static_cast<unsigned>(Table<Row>::kind);
  if ((kinds_seen_ & bit) != 0) return;
  kinds_seen_ |= bit;
  buffer_bytes_ += sizeof(Row) * Table<Row>::block_rows;
  // All tables share the scratch buffer, message and compressed frame: the largest counts.
  encoder_bytes_ =
      std::max<uint64_t>(encoder_bytes_, 3 * max_encoded_bytes<Row>(Table<Row>::block_rows));
}

uint64_t Drain::collect_chunk(const Pending& pending) noexcept {
  const uint64_t before = collected_[pending.chunk];
  const bool same_use = ring::generation_of(before) == ring::generation_of(pending.word);
  const uint8_t* at = arena_.chunk(pending.chunk) + (same_use ? ring::bytes_of(before) : 0);
  const uint8_t* const end = arena_.chunk(pending.chunk) + ring::bytes_of(pending.word);
  if (!same_use) note_thread(arena_.control(pending.chunk).thread);
  uint64_t records = 0;
  while (at < end) {
    const uint32_t bytes = ring::visit_record(
        at, static_cast<size_t>(end - at),
        [this]<typename Row>(const Row& row) {
          note_memory<Row>();
          append(row);
        },
        [this](uint32_t id, std::string_view text) {
          highest_string_ = std::max(highest_string_, id);
          if (window_ != nullptr) window_->take_string(id, text);
          trace_.append_string(id, text);
        });
    if (bytes == 0) {  // the ring was overwritten: the rest of the chunk cannot be read
      session_.count_dropped(BlockKind::kNone, 1);
      break;
    }
    at += bytes;
    ++records;
  }
  collected_[pending.chunk] = pending.word;
  return records;
}

bool Drain::flush() noexcept {
  if (failed_) return false;
  append_threads();
  if (!arena_.lost()) append_dropped();
  trace_.flush();
  if (trace_.failed()) {
    fail();
    return false;
  }
  checkpoint();
  give_back_chunks();
  return true;
}

void Drain::checkpoint() noexcept {
  ring::RingHeader& header = arena_.header();
  const auto active = std::atomic_ref(header.active_slot);
  const uint32_t slot = 1 - active.load(std::memory_order_relaxed);
  ring::Checkpoint& next = header.slots[slot];
  uint64_t* const released = arena_.released(slot);
  std::memcpy(released, collected_, arena_.chunk_count() * sizeof *released);
  next.file_bytes = checkpoint_bytes_ = trace_.bytes_written();
  next.rows = trace_.rows_written();
  next.generation = generation_;
  std::memcpy(next.dropped_reported, dropped_written_, sizeof dropped_written_);
  next.crc = ring::checkpoint_crc(next, released, arena_.chunk_count());
  active.store(slot, std::memory_order_release);
}

void Drain::give_back_chunks() noexcept {
  const uint32_t end = arena_.high_water();
  for (uint32_t chunk = 0; chunk < end; ++chunk) {
    const uint64_t word =
        std::atomic_ref(arena_.control(chunk).commit).load(std::memory_order_acquire);
    const uint32_t generation = ring::generation_of(word);
    const bool emptied = ring::bytes_of(word) == 0 || (word & ~ring::kSealed) == collected_[chunk];
    const bool done = (word & ring::kSealed) != 0 && given_back_[chunk] != generation && emptied;
    if (!done) continue;
    given_back_[chunk] = generation;
    arena_.give_back(chunk);
  }
}

void Drain::fail() noexcept {
  failed_ = true;
  const int error = trace_.error_number();
  complain(said_write_failed,
           "cannot write %s: %s; recording has stopped. The rest of the data is in %s: "
           "run 'tidemark recover' on the directory to save it",
           session_.trace_path, std::strerror(error), session_.ring_path);
  std::atomic_ref(arena_.header().write_error)
      .store(static_cast<uint32_t>(error), std::memory_order_relaxed);
  session_.write_failed.store(1, std::memory_order_relaxed);
  static_cast<void>(session_.file.cut(checkpoint_bytes_));  // if it fails, recovery does it
}

void Drain::lose_ring() noexcept {
  complain(said_lost, "the buffer %s was truncated or removed; recording has stopped",
           session_.ring_path);
  if (failed_) return;
  const uint32_t detail = new_string("ring: its file was truncated; the recording ends here");
  append(Health{now_ns(), 0, detail, HealthKind::kSourceMissing});
}

bool Drain::finish() noexcept {
  if (!flush()) return false;
  if (trace_.finish()) return true;
  fail();
  return false;
}

}  // namespace tidemark::injector
