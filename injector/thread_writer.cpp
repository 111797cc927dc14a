#include "injector/thread_writer.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "injector/session.h"
#include "injector/thread_exit.h"

namespace tidemark::injector {

namespace {
constinit Gate closed_gate{};
pthread_key_t exit_key;
bool have_exit_key = false;

void seal(ThreadWriter& writer) noexcept {
  if (writer.control != nullptr) {
    std::atomic_ref(writer.control->commit)
        .store(writer.commit | ring::kSealed, std::memory_order_release);
  }
  writer.control = nullptr;
  writer.room = 0;
}

// May run before other destructors of the same thread that record again: such a thread gets a chunk
// and a registration anew (POSIX runs destructors in up to four rounds).
void leave(void*) {
  ThreadWriter& writer = thread_writer;
  writer.busy = true;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  // In a forked child the chunk is the parent's.
  if (writer.session == active_session()) seal(writer);
  writer = ThreadWriter{};
}

// Uses of a chunk by one thread after another are told apart by their generation.
void open_chunk(ThreadWriter& writer, Session& session, uint32_t chunk) noexcept {
  ring::ChunkControl& control = session.arena.control(chunk);
  const auto commit = std::atomic_ref(control.commit);
  const uint32_t generation = ring::generation_of(commit.load(std::memory_order_relaxed)) + 1;
  std::atomic_ref(control.sequence).store(session.arena.draw_sequence(), std::memory_order_relaxed);
  std::atomic_ref(control.thread).store(writer.thread, std::memory_order_relaxed);
  writer.commit = ring::commit_word(generation, 0);
  commit.store(writer.commit, std::memory_order_release);
  writer.control = &control;
  writer.at = session.arena.chunk(chunk);
  writer.room = session.arena.chunk_bytes();
}

}  // namespace

constinit std::atomic<Gate*> gate{&closed_gate};
thread_local constinit ThreadWriter thread_writer{};

void prepare_thread_exit() noexcept {
  if (!have_exit_key) have_exit_key = pthread_key_create(&exit_key, leave) == 0;
}

bool take_chunk(ThreadWriter& writer, Session* session, BlockKind kind, uint32_t bytes) noexcept {
  const int host_errno = errno;
  if (writer.session == session) {
    seal(writer);
  } else {  // the first record of this thread in this recording
    writer.session = session;
    writer.control = nullptr;
    writer.room = 0;
    writer.thread = static_cast<uint32_t>(syscall(SYS_gettid));
  }
  if (!writer.registered && have_exit_key) {
    writer.registered = pthread_setspecific(exit_key, &writer) == 0;
  }
  const uint32_t chunk = session->arena.take();
  if (chunk != kNoChunk) open_chunk(writer, *session, chunk);
  if (session->arena.free_chunks() < session->arena.chunk_count() / 2) session->hurry_writer();
  errno = host_errno;
  if (writer.room >= bytes) return true;
  session->count_dropped(kind, 1);
  return false;
}

void count_reentered(Session* session, BlockKind kind) noexcept {
  session->count_dropped(kind, 1);
}

}  // namespace tidemark::injector
