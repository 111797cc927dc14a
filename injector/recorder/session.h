// Everything that belongs to one recording, from start() to stop().
//
// It lies in pages of its own. Any thread may be inside the recorder at any time, and the address
// of a session also serves as its identity (ThreadWriter::session): it is freed once no thread can
// be in it any more. What is large in it is given back to the system when the recording ends, for a
// thread may have been suspended in the middle of a record; then the addresses stay, empty, and the
// end of a later recording frees them.
#pragma once

#include <limits.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "injector/recorder/dictionaries.h"
#include "injector/recorder/ring_arena.h"
#include "injector/recorder/trace_file.h"

namespace tidemark::injector {

struct Session {
  // Safe in a signal handler. The counts lie in the ring's header: recovery finds them.
  void count_dropped(BlockKind kind, uint64_t rows) noexcept {
    std::atomic_ref(arena.header().dropped[static_cast<size_t>(kind) % ring::kKinds])
        .fetch_add(rows, std::memory_order_relaxed);
  }

  // Any thread. Chunks run short: one system call at most between two rounds of the writer.
  void hurry_writer() noexcept;
  void wake_writer() noexcept;

  RingArena arena;
  Dictionaries dictionaries;
  TraceFile file;
  RecorderOptions options;
  pid_t pid = 0;
  char trace_path[PATH_MAX] = {};
  char ring_path[PATH_MAX + 8] = {};
  char ring_target[128] = {};  // where the ring really lies when ring_path is a link to it

  // The writer sleeps on `wake`; each raises a number that the writer has seen when it equals its
  // counterpart.
  std::atomic<uint32_t> wake{0};
  std::atomic<uint32_t> hurry{0};
  std::atomic<uint32_t> flush_requested{0};
  std::atomic<uint32_t> flush_done{0};
  std::atomic<uint32_t> stopping{0};
  std::atomic<uint32_t> finished{0};
  std::atomic<uint32_t> write_failed{0};

  // What became of it, set when it is finished.
  std::atomic<uint64_t> written_rows{0};
  std::atomic<uint64_t> dropped_rows{0};

  // Of those that have ended and could not be freed yet; under the recorder's lock.
  Session* next_retired = nullptr;

  // The capture side's own.
  std::atomic<uint64_t> overhead_ns{0};
  std::atomic<int64_t> own_host_bytes{0};
};

// A session with its files made, or nullptr after a line on stderr.
Session* create_session(const RecorderOptions& options) noexcept;
// Takes back what create_session made, as if it had never been.
void abandon_session(Session& session) noexcept;
// All its memory. Its writer has finished and no thread is in it.
void free_session(Session& session) noexcept;

}  // namespace tidemark::injector
