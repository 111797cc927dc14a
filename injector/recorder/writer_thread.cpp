#include "injector/recorder/writer_thread.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "injector/process/tool_thread.h"
#include "injector/recorder/drain.h"
#include "injector/recorder/session.h"
#include "proto/base/pages.h"

namespace tidemark::injector {

namespace {

// zstd and the encoder keep their tables in their own pages; the deepest call path needs a few KiB.
constexpr size_t kWriterStackBytes = 512 << 10;

// Owned by the writer thread.
struct WriterJob {
  explicit WriterJob(Session& s) noexcept : session(s), drain(s) {}
  Session& session;
  Drain drain;
};

bool short_of_chunks(const Session& session) {
  return session.arena.free_chunks() < session.arena.chunk_count() / 2;
}

void end_of_recording(WriterJob* job) {
  Session& session = job->session;
  const bool whole = job->drain.finish();
  session.written_rows.store(job->drain.rows_written(), std::memory_order_relaxed);
  uint64_t dropped = 0;
  for (uint64_t& kind : session.arena.header().dropped) {
    dropped += std::atomic_ref(kind).load(std::memory_order_relaxed);
  }
  session.dropped_rows.store(dropped, std::memory_order_relaxed);
  if (whole) {
    ::unlink(session.ring_path);
    if (session.ring_target[0] != '\0') ::unlink(session.ring_target);
    session.arena.discard();
    session.dictionaries.discard();
  }
  session.file.close();
  session.arena.unlock();
  job->~WriterJob();
  unmap_pages(job, sizeof *job);
  session.finished.store(1, std::memory_order_release);
  wake_all(session.finished);
}

void run_writer(void* context) noexcept {
  auto& job = *static_cast<WriterJob*>(context);
  Session& session = job.session;
  const auto flush_ms = static_cast<int64_t>(session.options.flush_period_ms);
  int64_t next_flush_ms = monotonic_ms() + flush_ms;
  int64_t next_housekeeping_ms = monotonic_ms();
  int64_t next_hurry_ms = 0;
  while (true) {
    // Read before the records are collected: a later request waits for the next round.
    const uint32_t woken = session.wake.load(std::memory_order_acquire);
    const uint32_t request = session.flush_requested.load(std::memory_order_acquire);
    const bool stopping = session.stopping.load(std::memory_order_acquire) != 0;

    const int64_t now = monotonic_ms();
    // If waking up does not help, because the threads hold every chunk, it must not become a storm
    // of wake-ups.
    if (now >= next_hurry_ms) {
      session.hurry.store(0, std::memory_order_relaxed);
      next_hurry_ms = now + 2;
    }
    job.drain.collect();
    if (now >= next_housekeeping_ms || stopping) {
      job.drain.append_housekeeping();
      next_housekeeping_ms = now + 1000;
    }
    if (stopping) break;
    if (now >= next_flush_ms || short_of_chunks(session) ||
        request != session.flush_done.load(std::memory_order_relaxed)) {
      const bool written = job.drain.flush();
      next_flush_ms = monotonic_ms() + flush_ms;
      if (written) {
        session.flush_done.store(request, std::memory_order_release);
        wake_all(session.flush_done);
      }
    }
    session.arena.populate_ahead();
    wait_while(session.wake, woken, session.options.drain_period_ms);
  }
  end_of_recording(&job);
}

// ---- tasks ----------------------------------------------------------------------------------

struct TaskEntry {
  Recorder::Task run;
  void* context;
  uint32_t period_ms;
  int64_t next_ms;
};

// There is one task thread at a time, so that a task that hangs in a driver delays the tasks of the
// next recording instead of running twice. The thread ends when there are no tasks left.
struct TaskBoard {
  PidLock lock;  // entries, count, running
  TaskEntry entries[16] = {};
  uint32_t count = 0;
  bool thread_started = false;
  std::atomic<bool> hasten_all{false};
  std::atomic<Recorder::Task> hasten_one{nullptr};
  std::atomic<uint32_t> wake{0};
  std::atomic<uint32_t> running{0};
};
TaskBoard board;

// Finds the entry that is due and schedules its next run. No lock is held while waiting.
bool next_due(TaskEntry& due, uint32_t& wait_ms) {
  const int64_t now = monotonic_ms();
  wait_ms = 1000;
  board.lock.lock();
  if (board.hasten_all.exchange(false, std::memory_order_acq_rel)) {
    for (uint32_t i = 0; i < board.count; ++i) board.entries[i].next_ms = now;
  }
  if (Recorder::Task one = board.hasten_one.exchange(nullptr, std::memory_order_acq_rel)) {
    auto* const end = board.entries + board.count;
    auto* const at = std::find_if(board.entries, end, [&](TaskEntry& e) { return e.run == one; });
    if (at != end) {
      at->next_ms = now;
      std::rotate(board.entries, at, at + 1);
    }
  }
  bool found = false;
  for (uint32_t i = 0; i < board.count && !found; ++i) {
    TaskEntry& entry = board.entries[i];
    if (entry.next_ms <= now) {
      due = entry;
      entry.next_ms = now + entry.period_ms;
      board.running.store(1, std::memory_order_release);
      found = true;
    } else {
      wait_ms = std::min(wait_ms, static_cast<uint32_t>(entry.next_ms - now));
    }
  }
  // The task that is about to run goes to the end, so that a slow task does not starve the others.
  if (found) {
    auto* const at = std::find_if(board.entries, board.entries + board.count, [&](TaskEntry& e) {
      return e.run == due.run && e.context == due.context;
    });
    std::rotate(at, at + 1, board.entries + board.count);
  }
  board.lock.unlock();
  return found;
}

bool leave_empty_board() {
  board.lock.lock();
  const bool empty = board.count == 0;
  if (empty) board.thread_started = false;
  board.lock.unlock();
  return empty;
}

void run_tasks(void*) noexcept {
  while (true) {
    const uint32_t woken = board.wake.load(std::memory_order_acquire);
    TaskEntry due{};
    uint32_t wait_ms = 0;
    if (next_due(due, wait_ms)) {
      due.run(due.context);
      board.running.store(0, std::memory_order_release);
      wake_all(board.running);
    } else {
      if (leave_empty_board()) return;
      wait_while(board.wake, woken, wait_ms);
    }
  }
}

}  // namespace

void Session::hurry_writer() noexcept {
  if (write_failed.load(std::memory_order_relaxed) != 0) return;
  if (hurry.load(std::memory_order_relaxed) == 0 &&
      hurry.exchange(1, std::memory_order_relaxed) == 0) {
    wake_writer();
  }
}

void Session::wake_writer() noexcept {
  wake.fetch_add(1, std::memory_order_release);
  wake_all(wake);
}

bool start_writer(Session& session) noexcept {
  void* const memory = map_pages(sizeof(WriterJob));
  if (memory == nullptr) return false;
  auto* const job = new (memory) WriterJob(session);
  if (!job->drain.failed()) {
    session.arena.set_live();
    if (start_tool_thread("tidemark", kWriterStackBytes, run_writer, job)) return true;
  }
  const int error = errno;
  job->~WriterJob();
  unmap_pages(memory, sizeof(WriterJob));
  errno = error;
  return false;
}

bool wait_for_flush(Session& session, uint32_t timeout_ms) noexcept {
  const uint32_t request = session.flush_requested.fetch_add(1, std::memory_order_acq_rel) + 1;
  const int64_t deadline = monotonic_ms() + timeout_ms;
  session.wake_writer();
  while (true) {
    const uint32_t done = session.flush_done.load(std::memory_order_acquire);
    if (static_cast<int32_t>(done - request) >= 0) return true;
    const int64_t left = deadline - monotonic_ms();
    if (left <= 0 || session.write_failed.load(std::memory_order_relaxed) != 0 ||
        session.finished.load(std::memory_order_relaxed) != 0) {
      return false;
    }
    wait_while(session.flush_done, done, static_cast<uint32_t>(std::min<int64_t>(left, 100)));
  }
}

bool wait_for_finish(Session& session, uint32_t timeout_ms) noexcept {
  session.stopping.store(1, std::memory_order_release);
  session.wake_writer();
  const int64_t deadline = monotonic_ms() + timeout_ms;
  while (session.finished.load(std::memory_order_acquire) == 0) {
    const int64_t left = deadline - monotonic_ms();
    if (left <= 0) return false;
    wait_while(session.finished, 0, static_cast<uint32_t>(left));
  }
  return true;
}

bool add_task(Recorder::Task run, void* context, uint32_t period_ms) noexcept {
  board.lock.lock();
  const bool room = board.count < std::size(board.entries);
  if (room) board.entries[board.count++] = {run, context, std::max(period_ms, 1U), monotonic_ms()};
  const bool must_start = room && !board.thread_started;
  if (must_start) board.thread_started = true;
  board.lock.unlock();
  if (must_start && !start_tool_thread("tidemark-tasks", 0, run_tasks, nullptr)) {
    board.lock.lock();
    board.thread_started = false;
    board.count = 0;
    board.lock.unlock();
    return false;
  }
  board.wake.fetch_add(1, std::memory_order_release);
  wake_all(board.wake);
  return room;
}

void hasten_tasks(Recorder::Task run) noexcept {
  if (run == nullptr) {
    board.hasten_all.store(true, std::memory_order_release);
  } else {
    board.hasten_one.store(run, std::memory_order_release);
  }
  board.wake.fetch_add(1, std::memory_order_release);
  wake_all(board.wake);
}

bool stop_tasks(uint32_t timeout_ms) noexcept {
  board.lock.lock();
  board.count = 0;
  board.lock.unlock();
  const int64_t deadline = monotonic_ms() + timeout_ms;
  while (board.running.load(std::memory_order_acquire) != 0) {
    const int64_t left = deadline - monotonic_ms();
    if (left <= 0) return false;
    wait_while(board.running, 1, static_cast<uint32_t>(left));
  }
  board.wake.fetch_add(1, std::memory_order_release);  // it finds no task, and ends
  wake_all(board.wake);
  return true;
}

void forget_tasks() noexcept {
  board.count = 0;
  board.thread_started = false;
  board.hasten_all.store(false, std::memory_order_relaxed);
  board.hasten_one.store(nullptr, std::memory_order_relaxed);
  board.running.store(0, std::memory_order_relaxed);
}

}  // namespace tidemark::injector
