// A thread's position in the ring, and the few instructions that write a record there.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/ring_layout.h"

namespace tidemark::injector {

struct Session;
struct PythonFrames;

// Which recording is on. It has a page of its own, which the kernel clears in a forked child
// (MADV_WIPEONFORK). So a child is off from its first instruction, even one made by a raw clone()
// that runs no atfork handlers.
struct Gate {
  std::atomic<Session*> session;
};
extern std::atomic<Gate*> gate;

inline Session* active_session() noexcept {
  return gate.load(std::memory_order_acquire)->session.load(std::memory_order_acquire);
}

// Owned by its thread, except `session`, which is cleared when a recording has ended. Stored in the
// thread register (thread_register.h), which seals the chunk when the thread ends.
struct alignas(64) ThreadWriter {
  std::atomic<Session*> session;  // the session that the chunk belongs to
  uint8_t* at;                    // where the next record goes
  ring::ChunkControl* control;    // nullptr: no chunk
  uint64_t commit;                // what control->commit holds
  uint32_t room;                  // bytes left in the chunk
  std::atomic<uint32_t> thread;   // tid; 0: the place is free
  // The thread is inside the recorder: a nested call is rejected, and the memory of the recording
  // is kept.
  std::atomic<bool> busy;
  std::atomic<bool> walking;  // the thread is reading its Python frames (python/exit_watch.h)
  // Of its last walk (python/walk.h). It stays with the place for the next thread.
  PythonFrames* python_frames;
};

// nullptr until the thread records for the first time. Initial-exec: the address is a constant
// offset from the thread pointer. The default model of a shared library would call __tls_get_addr,
// which allocates a thread's block on first use: a malloc inside a malloc hook or a signal handler.
// The cost is a part of the loader's small reserve for libraries loaded by dlopen (glibc keeps 1664
// bytes).
extern thread_local constinit ThreadWriter* thread_writer
    __attribute__((tls_model("initial-exec")));

// Slow paths. Each counts what it drops.
ThreadWriter* register_thread(BlockKind kind) noexcept;  // nullptr: no memory
bool take_chunk(ThreadWriter& writer, Session* session, BlockKind kind, uint32_t bytes) noexcept;
void count_reentered(BlockKind kind) noexcept;
// No more records go into this chunk.
void seal_chunk(ThreadWriter& writer) noexcept;

// Relaxed, because the barrier in all threads that follows the check of `busy` orders what was done
// before. The thread sanitizer does not know such barriers.
#if defined(__SANITIZE_THREAD__)
inline constexpr auto kLeaveOrder = std::memory_order_release;
#else
inline constexpr auto kLeaveOrder = std::memory_order_relaxed;
#endif
inline void leave_recorder(ThreadWriter& writer) noexcept {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  writer.busy.store(false, kLeaveOrder);
}

// Marks the calling thread as being inside the recorder. While it is in scope the memory of the
// recording is kept (see thread_register.h for the order of operations). Calls that interrupt the
// thread inside this scope are rejected. session() is null when rejected or when the recorder is
// off.
class BusyScope {
 public:
  explicit BusyScope(BlockKind kind) noexcept {
    const Gate& open = *gate.load(std::memory_order_acquire);
    if (open.session.load(std::memory_order_relaxed) == nullptr) return;
    ThreadWriter* writer = thread_writer;
    if (writer == nullptr) [[unlikely]] {
      writer = register_thread(kind);
      if (writer == nullptr) return;
    }
    if (writer->busy.load(std::memory_order_relaxed)) [[unlikely]] {
      count_reentered(kind);
      return;
    }
    writer->busy.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    session_ = open.session.load(std::memory_order_acquire);
    writer_ = writer;
  }
  ~BusyScope() {
    if (writer_ != nullptr) leave_recorder(*writer_);
  }
  BusyScope(const BusyScope&) = delete;
  BusyScope& operator=(const BusyScope&) = delete;

  Session* session() const noexcept { return session_; }
  ThreadWriter& writer() const noexcept { return *writer_; }  // only if there is a session

 private:
  Session* session_ = nullptr;
  ThreadWriter* writer_ = nullptr;
};

// Space for one record of `bytes` for a thread inside a BusyScope; nullptr: dropped and counted.
inline uint8_t* begin_record(ThreadWriter& writer, Session* session, BlockKind kind,
                             uint32_t bytes) noexcept {
  if (writer.session.load(std::memory_order_relaxed) != session || writer.room < bytes)
      [[unlikely]] {
    if (!take_chunk(writer, session, kind, bytes)) return nullptr;
  }
  const ring::RecordHeader header{static_cast<uint16_t>(kind), 0, bytes};
  __builtin_memcpy(writer.at, &header, sizeof header);
  return writer.at + sizeof header;
}

// This store makes the record part of the recording, all of it or nothing.
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
      content_ = begin_record(busy_.writer(), busy_.session(), kind, bytes);
    }
  }
  explicit operator bool() const noexcept { return content_ != nullptr; }
  uint8_t* content() const noexcept { return content_; }
  void commit(uint32_t bytes) noexcept { end_record(busy_.writer(), bytes); }

 private:
  BusyScope busy_;
  uint8_t* content_ = nullptr;
};

}  // namespace tidemark::injector
