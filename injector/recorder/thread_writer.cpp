#include "injector/recorder/thread_writer.h"

#include <cerrno>

#include "injector/recorder/session.h"

namespace tidemark::injector {

namespace {

constinit Gate closed_gate{};

// The generation tells apart the successive uses of a chunk.
void open_chunk(ThreadWriter& writer, Session& session, uint32_t chunk) noexcept {
  ring::ChunkControl& control = session.arena.control(chunk);
  const auto commit = std::atomic_ref(control.commit);
  const uint32_t generation = ring::generation_of(commit.load(std::memory_order_relaxed)) + 1;
  std::atomic_ref(control.sequence).store(session.arena.draw_sequence(), std::memory_order_relaxed);
  std::atomic_ref(control.thread)
      .store(writer.thread.load(std::memory_order_relaxed), std::memory_order_relaxed);
  writer.commit = ring::commit_word(generation, 0);
  commit.store(writer.commit, std::memory_order_release);
  writer.control = &control;
  writer.at = session.arena.chunk(chunk);
  writer.room = session.arena.chunk_bytes();
}

}  // namespace

constinit std::atomic<Gate*> gate{&closed_gate};

void seal_chunk(ThreadWriter& writer) noexcept {
  if (writer.control != nullptr) {
    std::atomic_ref(writer.control->commit)
        .store(writer.commit | ring::kSealed, std::memory_order_release);
  }
  writer.control = nullptr;
  writer.room = 0;
}

bool take_chunk(ThreadWriter& writer, Session* session, BlockKind kind, uint32_t bytes) noexcept {
  const int host_errno = errno;
  if (writer.session.load(std::memory_order_relaxed) == session) {
    seal_chunk(writer);
  } else {  // first record of this thread in this recording
    writer.session.store(session, std::memory_order_relaxed);
    writer.control = nullptr;
    writer.room = 0;
  }
  const uint32_t chunk = session->arena.take();
  if (chunk != kNoChunk) open_chunk(writer, *session, chunk);
  if (session->arena.free_chunks() < session->arena.chunk_count() / 2) session->hurry_writer();
  errno = host_errno;
  if (writer.room >= bytes) return true;
  session->count_dropped(kind, 1);
  return false;
}

// The interrupted call keeps the memory of the recording alive.
void count_reentered(BlockKind kind) noexcept {
  if (Session* const session = active_session()) session->count_dropped(kind, 1);
}

}  // namespace tidemark::injector
