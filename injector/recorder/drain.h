// Moves records from the ring to the trace. Used by the writer thread only.
//
// collect() moves committed records into the TraceWriter, which writes each block as it fills up.
// flush() writes the partial blocks, makes a checkpoint (ring_layout.h, rule 2) and only then
// returns emptied chunks to the free list. Whatever happens between two checkpoints, recovery
// starts from the last one. After a failed write the trace is truncated to the last checkpoint and
// not written to any more; the ring keeps its content for recovery, and new rows that do not fit
// are dropped and counted.
#pragma once

#include <cstdint>
#include <string_view>

#include "injector/recorder/ring_arena.h"
#include "injector/recorder/session.h"
#include "injector/trace/window.h"
#include "proto/write/trace_writer.h"

namespace tidemark::injector {

class Drain {
 public:
  // Writes the file header. `failed()` is true if that, or getting memory, failed.
  explicit Drain(Session& session) noexcept;
  ~Drain();
  Drain(const Drain&) = delete;
  Drain& operator=(const Drain&) = delete;

  // Number of records moved.
  uint64_t collect() noexcept;
  bool flush() noexcept;
  // Flushes and writes the index. When it returns true the ring is no longer needed.
  bool finish() noexcept;

  // After the loss of the ring (RingArena::lost): says so in the trace, which can be finished.
  void lose_ring() noexcept;

  // Carries out requests to seal the window, and from time to time those of other ranks; `ending`:
  // for the last time.
  void seal_if_asked(bool ending) noexcept;

  // Clock sample, overhead and memory used by tidemark, about once per second.
  void append_housekeeping() noexcept;

  bool failed() const noexcept { return failed_; }
  uint64_t rows_written() const noexcept { return trace_.rows_written(); }

 private:
  // A chunk with records up to `word` that have not been collected.
  struct Pending {
    uint64_t sequence;
    uint64_t word;
    uint32_t chunk;
  };

  uint32_t find_pending() noexcept;
  uint64_t collect_chunk(const Pending& pending) noexcept;
  void append_dropped() noexcept;
  void append_threads() noexcept;
  void note_thread(uint32_t thread) noexcept;
  void checkpoint() noexcept;
  // `between_rounds`: the state is that of a whole number of rounds. `more_bytes`: soon written.
  void keep_window(bool between_rounds, uint64_t more_bytes) noexcept;
  void make_window() noexcept;
  bool seal(const char* name) noexcept;
  // Up to now, not only up to the begin of this round.
  bool used_memory() noexcept;
  SealOutcome seal_as_asked() noexcept;
  // Not within `pause_ns` after `last_ns`.
  bool seal_together(const char* reason, int64_t last_ns, int64_t pause_ns) noexcept;
  void seal_unasked(const char* reason) noexcept;
  void seal_as_others() noexcept;
  template <typename Row>
  void append(Row row) noexcept {
    if (window_ != nullptr) window_->take(row);
    trace_.append(row);
  }
  void give_back_chunks() noexcept;
  void fail() noexcept;
  uint32_t new_string(std::string_view text) noexcept;
  template <typename Row>
  void note_memory() noexcept;

  Session& session_;
  RingArena& arena_;
  TraceWriter trace_;

  // Only if a window is kept.
  Window* window_ = nullptr;
  SealBoard* board_ = nullptr;
  StateNames state_names_;
  uint32_t generation_ = 0;  // of the file
  int64_t last_seal_ns_ = 0;
  int64_t last_unasked_ns_ = 0;  // of a seal that nobody asked for, here or on another rank
  uint32_t unasked_ = 0;         // number of those here
  uint32_t errors_seen_ = 0;
  uint32_t signals_seen_ = 0;
  char last_seal_[kSealNameBytes] = "";
  bool last_seal_told_ = false;  // by another rank

  // Indexed by chunk.
  uint64_t* collected_ = nullptr;   // commit word (without sealed bit) of what was moved
  uint32_t* given_back_ = nullptr;  // generation that was returned to the free list
  Pending* pending_ = nullptr;

  // Threads that have recorded; their names are read at the next flush.
  static constexpr uint32_t kMaxThreads = 4096;
  uint32_t threads_[kMaxThreads] = {};  // a hash set
  uint32_t new_threads_[64] = {};
  uint32_t new_thread_count_ = 0;

  uint64_t dropped_written_[ring::kKinds] = {};  // counted in a row that may not be in the file yet
  uint32_t dropped_names_[ring::kKinds] = {};    // strings
  uint64_t checkpoint_bytes_ = 0;
  uint64_t kinds_seen_ = 0;
  uint64_t buffer_bytes_ = 0;
  uint64_t encoder_bytes_ = 0;
  int64_t cpu_ns_ = 0;
  uint64_t host_overhead_ns_ = 0;
  uint32_t highest_string_ = 0;  // of those in the trace
  uint32_t writer_name_ = 0;     // strings
  uint32_t callbacks_name_ = 0;
  bool failed_ = false;
};

}  // namespace tidemark::injector
