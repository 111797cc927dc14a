// One thread's place in the ring, and the few instructions that put a record there.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/ring_layout.h"

namespace tidemark::injector {

struct Session;

// Which recording is on. It lies in a page of its own that the kernel hands to a forked child as
// zeros (MADV_WIPEONFORK), so that a child is off from its first instruction, also one made by a
// raw clone() that runs no atfork handler.
struct Gate {
  std::atomic<Session*> session;
};
extern std::atomic<Gate*> gate;

inline Session* active_session() noexcept {
  return gate.load(std::memory_order_relaxed)->session.load(std::memory_order_acquire);
}

// Owned by its thread; no other touches it. A thread that ends seals its chunk (pthread key).
struct ThreadWriter {
  Session* session;             // whose chunk this is
  uint8_t* at;                  // where the next record goes
  uint32_t room;                // bytes left in the chunk
  uint32_t thread;              // tid
  ring::ChunkControl* control;  // nullptr: no chunk
  uint64_t commit;              // what control->commit holds
  bool busy;                    // inside the recorder: a call that interrupts is turned away
  bool registered;              // for clean-up at thread exit
};

// Initial-exec: the address is a constant offset from the thread pointer. The default model of a
// shared library would call __tls_get_addr, which allocates a thread's block on first use: a malloc
// inside a malloc hook or a signal handler. The price is a share of the loader's small reserve for
// libraries that come by dlopen (glibc keeps 1664 bytes), hence few and small members.
extern thread_local constinit ThreadWriter thread_writer __attribute__((tls_model("initial-exec")));

// The slow ways out of RecordScope. Each counts what it drops.
bool take_chunk(ThreadWriter& writer, Session* session, BlockKind kind, uint32_t bytes) noexcept;
void count_reentered(Session* session, BlockKind kind) noexcept;

// Turns away calls that interrupt this thread's own stay in the recorder. False: turned away, or
// the recorder is off.
class BusyScope {
 public:
  explicit BusyScope(BlockKind kind) noexcept : session_(active_session()) {
    if (session_ == nullptr) return;
    if (thread_writer.busy) [[unlikely]] {
      count_reentered(session_, kind);
      session_ = nullptr;
      return;
    }
    thread_writer.busy = true;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~BusyScope() {
    if (session_ == nullptr) return;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    thread_writer.busy = false;
  }
  BusyScope(const BusyScope&) = delete;
  BusyScope& operator=(const BusyScope&) = delete;

  Session* session() const noexcept { return session_; }

 private:
  Session* session_;
};

// Room for one record of `bytes` for a thread that is inside a BusyScope; nullptr: dropped,
// counted.
inline uint8_t* begin_record(ThreadWriter& writer, Session* session, BlockKind kind,
                             uint32_t bytes) noexcept {
  if (writer.session != session || writer.room < bytes) [[unlikely]] {
    if (!take_chunk(writer, session, kind, bytes)) return nullptr;
  }
  const ring::RecordHeader header{static_cast<uint16_t>(kind), 0, bytes};
  __builtin_memcpy(writer.at, &header, sizeof header);
  return writer.at + sizeof header;
}

// The record becomes part of the recording with this store, all of it or nothing.
inline void end_record(ThreadWriter& writer, uint32_t bytes) noexcept {
  writer.at += bytes;
  writer.room -= bytes;
  writer.commit += bytes;
  std::atomic_ref(writer.control->commit).store(writer.commit, std::memory_order_release);
}

class RecordScope {
 public:
  RecordScope(BlockKind kind, uint32_t bytes) noexcept : busy_(kind) {
    if (busy_.session() != nullptr) [[likely]] {
      content_ = begin_record(thread_writer, busy_.session(), kind, bytes);
    }
  }
  explicit operator bool() const noexcept { return content_ != nullptr; }
  uint8_t* content() const noexcept { return content_; }
  void commit(uint32_t bytes) noexcept { end_record(thread_writer, bytes); }

 private:
  BusyScope busy_;
  uint8_t* content_ = nullptr;
};

}  // namespace tidemark::injector
