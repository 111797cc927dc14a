#include "injector/recorder/writer_thread.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>

#include "injector/process/tool_thread.h"
#include "injector/recorder/drain.h"
#include "injector/recorder/session.h"
#include "injector/recorder/thread_writer.h"
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
    if (session.arena.lost()) {
      // Nothing more is recorded: the ring also held the numbers of all names.
      Session* ours = &session;
      gate.load(std::memory_order_relaxed)->session.compare_exchange_strong(ours, nullptr);
      job.drain.lose_ring();
      break;
    }
    if (now >= next_housekeeping_ms || stopping) {
      job.drain.append_housekeeping();
      next_housekeeping_ms = now + 1000;
    }
    if (stopping) {
      job.drain.seal_if_asked(true);
      break;
    }
    if (now >= next_flush_ms || short_of_chunks(session) ||
        request != session.flush_done.load(std::memory_order_relaxed)) {
      const bool written = job.drain.flush();
      next_flush_ms = monotonic_ms() + flush_ms;
      // A process that ran out of memory waits for this, and may be gone right after.
      job.drain.seal_if_asked(false);
      if (written) {
        session.flush_done.store(request, std::memory_order_release);
        wake_all(session.flush_done);
      }
    } else {
      job.drain.seal_if_asked(false);
    }
    session.arena.populate_ahead();
    wait_while(session.wake, woken, session.options.drain_period_ms);
  }
  end_of_recording(&job);
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

SealOutcome wait_for_seal(Session& session, const SealRequest& request,
                          uint32_t timeout_ms) noexcept {
  uint32_t idle = Session::kSealIdle;
  if (!session.seal_state.compare_exchange_strong(idle, Session::kSealAsking)) {
    return SealOutcome::kBusy;
  }
  std::snprintf(session.seal_name, sizeof session.seal_name, "%s", request.name);
  session.seal_together = request.together;
  session.seal_only_if_used = request.only_if_used;
  session.seal_asked_ns = request.asked_ns;
  const uint32_t before = session.seals_done.load(std::memory_order_acquire);
  session.seal_state.store(Session::kSealAsked, std::memory_order_release);
  session.wake_writer();
  const int64_t deadline = monotonic_ms() + timeout_ms;
  while (session.seals_done.load(std::memory_order_acquire) == before) {
    const int64_t left = deadline - monotonic_ms();
    if (left <= 0 || session.finished.load(std::memory_order_relaxed) != 0) {
      return SealOutcome::kLate;
    }
    wait_while(session.seals_done, before, static_cast<uint32_t>(std::min<int64_t>(left, 100)));
  }
  return static_cast<SealOutcome>(session.seal_outcome.load(std::memory_order_acquire));
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

}  // namespace tidemark::injector
