#include "injector/recorder/thread_register.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "injector/process/tool_thread.h"
#include "proto/base/pages.h"

namespace tidemark::injector {

namespace {

constexpr uint32_t kPlaces = 64;  // per piece: 4 KiB

struct Piece {
  ThreadWriter places[kPlaces];
  std::atomic<Piece*> next;
};

constinit Piece first_piece{};
constinit std::atomic<uint64_t> turned_away[ring::kKinds] = {};
pthread_key_t exit_key;
bool have_exit_key = false;

uint32_t own_thread() noexcept {
  return static_cast<uint32_t>(syscall(SYS_gettid));
}

ThreadWriter* claim_in(Piece& piece, uint32_t thread) noexcept {
  for (ThreadWriter& place : piece.places) {
    uint32_t nobody = 0;
    if (place.thread.load(std::memory_order_relaxed) == 0 &&
        place.thread.compare_exchange_strong(nobody, thread, std::memory_order_acquire)) {
      return &place;
    }
  }
  return nullptr;
}

// The piece after this one, created if needed. nullptr: no memory.
Piece* next_piece(Piece& piece) noexcept {
  Piece* next = piece.next.load(std::memory_order_acquire);
  if (next != nullptr) return next;
  auto* const made = static_cast<Piece*>(map_pages(sizeof(Piece)));
  if (made == nullptr) return nullptr;
  if (piece.next.compare_exchange_strong(next, made, std::memory_order_acq_rel)) return made;
  unmap_pages(made, sizeof(Piece));  // another thread was first
  return next;
}

ThreadWriter* claim(uint32_t thread) noexcept {
  for (Piece* piece = &first_piece; piece != nullptr; piece = next_piece(*piece)) {
    if (ThreadWriter* const place = claim_in(*piece, thread)) return place;
  }
  return nullptr;
}

void release(ThreadWriter& place) noexcept {
  place.session.store(nullptr, std::memory_order_relaxed);
  place.busy.store(false, std::memory_order_relaxed);
  place.walking.store(false, std::memory_order_relaxed);
  place.thread.store(0, std::memory_order_release);
}

template <typename Visit>
void each_place(Visit&& visit) noexcept {
  for (Piece* piece = &first_piece; piece != nullptr;
       piece = piece->next.load(std::memory_order_acquire)) {
    for (ThreadWriter& place : piece->places) visit(place);
  }
}

// May run before other destructors of the same thread that record again: such a thread gets a new
// place and a new chunk (POSIX runs destructors in up to four rounds). Anything left after that is
// found when a recording ends.
void leave(void*) {
  ThreadWriter* const writer = thread_writer;
  if (writer == nullptr) return;
  writer->busy.store(true, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  // In a forked child the chunk belongs to the parent.
  Session* const session = active_session();
  if (session != nullptr && writer->session.load(std::memory_order_relaxed) == session) {
    seal_chunk(*writer);
  }
  thread_writer = nullptr;
  release(*writer);
}

bool has_ended(uint32_t thread) noexcept {
  return syscall(SYS_tgkill, ::getpid(), thread, 0) != 0 && errno == ESRCH;
}

// The first call in a process registers it, which takes the kernel milliseconds.
bool barrier_in_all_threads() noexcept {
  const auto ask = [](int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; };
  return ask(MEMBARRIER_CMD_PRIVATE_EXPEDITED) ||
         (ask(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && ask(MEMBARRIER_CMD_PRIVATE_EXPEDITED));
}

using Flag = std::atomic<bool> ThreadWriter::*;

bool any_thread_has(Flag flag) noexcept {
  bool any = false;
  each_place([&](ThreadWriter& place) { any |= (place.*flag).load(std::memory_order_acquire); });
  return any;
}

void free_places_of_ended_threads() noexcept {
  each_place([](ThreadWriter& place) {
    const uint32_t thread = place.thread.load(std::memory_order_acquire);
    if (thread != 0 && has_ended(thread)) release(place);
  });
}

bool wait_until_no_thread_has(Flag flag, uint32_t timeout_ms) noexcept {
  if (!barrier_in_all_threads()) return false;
  free_places_of_ended_threads();
  const int64_t deadline = monotonic_ms() + timeout_ms;
  while (any_thread_has(flag)) {
    if (monotonic_ms() >= deadline) return false;
    const timespec pause{0, 200'000};
    nanosleep(&pause, nullptr);
  }
  return barrier_in_all_threads();  // their last stores are visible after this
}

}  // namespace

thread_local constinit ThreadWriter* thread_writer = nullptr;

void prepare_thread_register() noexcept {
  if (!have_exit_key) have_exit_key = pthread_key_create(&exit_key, leave) == 0;
}

ThreadWriter* register_thread(BlockKind kind) noexcept {
  const int host_errno = errno;
  ThreadWriter* const place = claim(own_thread());
  if (place == nullptr) {
    turned_away[static_cast<size_t>(kind) % ring::kKinds].fetch_add(1, std::memory_order_relaxed);
  } else if (thread_writer != nullptr) {
    release(*place);  // a signal handler was first
  } else {
    thread_writer = place;
    if (have_exit_key) pthread_setspecific(exit_key, place);
  }
  errno = host_errno;
  return thread_writer;
}

bool wait_until_nobody_walks(uint32_t timeout_ms) noexcept {
  return wait_until_no_thread_has(&ThreadWriter::walking, timeout_ms);
}

bool wait_until_nobody_records(uint32_t timeout_ms) noexcept {
  if (!wait_until_no_thread_has(&ThreadWriter::busy, timeout_ms)) return false;
  each_place([](ThreadWriter& place) { place.session.store(nullptr, std::memory_order_relaxed); });
  return true;
}

void forget_other_threads() noexcept {
  each_place([](ThreadWriter& place) {
    if (&place != thread_writer) release(place);
  });
  if (thread_writer == nullptr) return;
  thread_writer->session.store(nullptr, std::memory_order_relaxed);
  thread_writer->busy.store(false, std::memory_order_relaxed);
  thread_writer->walking.store(false, std::memory_order_relaxed);
  thread_writer->thread.store(own_thread(), std::memory_order_relaxed);
}

uint64_t take_turned_away(BlockKind kind) noexcept {
  return turned_away[static_cast<size_t>(kind) % ring::kKinds].exchange(0);
}

}  // namespace tidemark::injector
