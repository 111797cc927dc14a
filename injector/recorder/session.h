// Everything that belongs to one recording, from start() to stop().
//
// A session has its own pages. Any thread may be inside the recorder at any time, and the address
// of a session also serves as its identity (ThreadWriter::session), so it is freed only when no
// thread can be inside it any more. When a thread may have been suspended in the middle of a
// record, the large members are emptied at the end of the recording but stay mapped, and the end of
// a later recording frees them.
#pragma once

#include <limits.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "injector/recorder/dictionaries.h"
#include "injector/recorder/ring_arena.h"
#include "injector/trace/seal_board.h"
#include "injector/trace/trace_file.h"

namespace tidemark::injector {

struct Session {
  // Safe in a signal handler. The counters are in the ring's header, where recovery finds them.
  void count_dropped(BlockKind kind, uint64_t rows) noexcept {
    std::atomic_ref(arena.header().dropped[static_cast<size_t>(kind) % ring::kKinds])
        .fetch_add(rows, std::memory_order_relaxed);
  }

  // Any thread. Called when chunks run short: at most one system call between two rounds of the
  // writer.
  void hurry_writer() noexcept;
  void wake_writer() noexcept;

  RingArena arena;
  Dictionaries dictionaries;
  TraceFile file;
  RecorderOptions options;
  pid_t pid = 0;
  char trace_path[PATH_MAX] = {};
  char ring_path[PATH_MAX + 8] = {};
  char ring_target[PATH_MAX] = {};  // the ring file, if ring_path is a link to it
  char job[96] = {};

  // The writer sleeps on `wake`. A request raises a number; the writer has handled it when its
  // counterpart is equal.
  std::atomic<uint32_t> wake{0};
  std::atomic<uint32_t> hurry{0};
  std::atomic<uint32_t> flush_requested{0};
  std::atomic<uint32_t> flush_done{0};
  std::atomic<uint32_t> stopping{0};
  std::atomic<uint32_t> finished{0};
  std::atomic<uint32_t> write_failed{0};

  // A request to seal: who raises `seal_state` from idle to asking fills in the name and sets it to
  // asked; the writer sets it to idle when it is done and raises `seals_done`.
  enum SealState : uint32_t { kSealIdle, kSealAsking, kSealAsked };
  std::atomic<uint32_t> seal_state{kSealIdle};
  std::atomic<uint32_t> seals_done{0};
  std::atomic<uint32_t> seal_outcome{0};       // SealOutcome of the last one
  std::atomic<uint32_t> errors_to_seal{0};     // seal_after_error() was called
  char seal_name[kSealNameBytes] = {};
  bool seal_together = false;
  bool seal_only_if_used = false;
  int64_t seal_asked_ns = 0;

  // The result, set when the session is finished.
  std::atomic<uint64_t> written_rows{0};
  std::atomic<uint64_t> dropped_rows{0};

  // List of sessions that have ended but could not be freed yet; under the recorder's lock.
  Session* next_retired = nullptr;

  // Time spent and memory held by the capture code.
  std::atomic<uint64_t> overhead_ns{0};
  std::atomic<int64_t> own_host_bytes{0};
  // The same of the writer thread, and all memory together; set by it once per second.
  std::atomic<uint64_t> writer_ns{0};
  std::atomic<uint64_t> host_bytes{0};
};

// A session with its files created, or nullptr after a message on stderr.
Session* create_session(const RecorderOptions& options) noexcept;
// Undoes create_session completely.
void abandon_session(Session& session) noexcept;
// Frees all its memory. Its writer must have finished and no thread may be inside it.
void free_session(Session& session) noexcept;

}  // namespace tidemark::injector
