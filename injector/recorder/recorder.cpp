#include "injector/recorder/recorder.h"

#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "injector/process/complain.h"
#include "injector/process/seal_signal.h"
#include "injector/process/tool_thread.h"
#include "injector/recorder/session.h"
#include "injector/recorder/task_thread.h"
#include "injector/recorder/thread_register.h"
#include "injector/recorder/writer_thread.h"
#include "proto/base/pages.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

namespace tidemark::injector {

namespace {

// How long the end of a process may wait for tidemark.
constexpr uint32_t kFinishTimeoutMs = 10'000;
constexpr uint32_t kTaskTimeoutMs = 1'500;
constexpr uint32_t kLeaveTimeoutMs =
    50;  // for threads inside the recorder, which takes nanoseconds
constexpr long kPageBytes = 4096;

constinit Recorder the_recorder;
// start() and the hooks; held while files are created, which can hang.
constinit PidLock lifecycle{PidLock::Use::kForeignCalls};
constinit std::atomic<Session*> current{};  // also while stop() has closed the gate
constinit char latest_path[PATH_MAX] = "";  // under lifecycle
constinit Errand hooks[kMostErrands] = {};
constinit uint32_t hook_count = 0;
constinit Session* retired = nullptr;                  // sessions not freed yet; under lifecycle
constinit std::atomic<uint32_t> waiting_for_flush{0};  // threads that use a session in flush_now()
constinit bool prepared = false;
constinit bool disabled = false;

std::atomic_flag said_no_thread;
std::atomic_flag said_busy;
std::atomic_flag said_unfinished;
std::atomic_flag said_signal_taken;

// A forked child has one thread, a copy of the parent's memory, and the parent's ring still mapped.
// It must not touch the ring or the file, but it can close its copies of the descriptors.
void leave_to_parent() noexcept {
  gate.load(std::memory_order_relaxed)->session.store(nullptr, std::memory_order_relaxed);
  Session* const parents = current.exchange(nullptr, std::memory_order_relaxed);
  if (parents != nullptr) {
    parents->file.close();
    parents->arena.unlock();
  }
  forget_tasks();
  hook_count = 0;
  disabled = false;
  retired = nullptr;
  waiting_for_flush.store(0, std::memory_order_relaxed);
  forget_other_threads();
}

void in_forked_child() {
  const int host_errno = errno;
  leave_to_parent();
  errno = host_errno;
}

void at_exit() {
  static_cast<void>(recorder().stop());
}

bool make_gate() noexcept {
  void* const page = map_pages(kPageBytes);
  if (page == nullptr) return false;
  // Before Linux 4.14 only the atfork handler protects the child.
  static_cast<void>(::madvise(page, kPageBytes, MADV_WIPEONFORK));
  gate.store(static_cast<Gate*>(page), std::memory_order_release);
  return true;
}

bool prepare_process() noexcept {
  if (prepared) return true;
  if (!make_gate()) return false;
  prepare_thread_register();
  pthread_atfork(nullptr, nullptr, in_forked_child);
  std::atexit(at_exit);
  prepared = true;
  return true;
}

bool start_locked(const RecorderOptions& options) noexcept {
  Session* const before = current.load(std::memory_order_relaxed);
  if (before != nullptr && before->pid != ::getpid()) leave_to_parent();  // a raw clone()
  if (active_session() != nullptr) return true;
  if (disabled && !options.again) return false;

  Session* const session = prepare_process() ? create_session(options) : nullptr;
  disabled = session == nullptr;
  if (disabled) return false;
  if (!start_writer(*session)) {
    complain(said_no_thread, "cannot start the writer thread for %s: %s; recording is off",
             session->trace_path, std::strerror(errno));
    abandon_session(*session);
    disabled = true;
    return false;
  }
  std::snprintf(latest_path, sizeof latest_path, "%s", session->trace_path);
  current.store(session, std::memory_order_release);
  gate.load(std::memory_order_relaxed)->session.store(session, std::memory_order_release);
  const int signal = options.keeps_window() ? options.seal_signal : 0;
  if (signal != 0 && !install_seal_signal(signal)) {
    complain(said_signal_taken,
             "the program uses the signal of TIDEMARK_SEAL_SIGNAL itself; tidemark leaves it alone "
             "(tidemark seal does the same)");
  }
  return true;
}

// On the task thread, since they call the driver. False: it did not answer in time.
bool run_finish_hooks() noexcept {
  Errand to_run[std::size(hooks)];
  if (!lifecycle.lock_for(kTaskTimeoutMs)) return false;  // a start hangs in the file system
  const uint32_t count = hook_count;
  std::reverse_copy(hooks, hooks + count, to_run);
  hook_count = 0;
  lifecycle.unlock();
  return run_on_task_thread({to_run, count}, kTaskTimeoutMs);
}

// ---- the end --------------------------------------------------------------------------------

// Closes the gate; true when no thread is inside the session any more.
bool close_gate() noexcept {
  const bool locked = lifecycle.lock_for(kTaskTimeoutMs);
  gate.load(std::memory_order_relaxed)->session.store(nullptr, std::memory_order_seq_cst);
  const bool empty = wait_until_nobody_records(kLeaveTimeoutMs);
  if (!locked) return false;
  lifecycle.unlock();
  // The record of a thread that was suspended for longer is not part of the recording.
  return empty;
}

bool can_be_freed(const Session& session) noexcept {
  return session.finished.load(std::memory_order_acquire) != 0 &&
         waiting_for_flush.load(std::memory_order_seq_cst) == 0;
}

// A session that cannot be freed now is freed when a later one ends.
void free_or_retire(Session& session, bool empty) noexcept {
  if (!lifecycle.lock_for(kTaskTimeoutMs)) return;  // the process is about to end
  if (empty) {
    for (Session** at = &retired; *at != nullptr;) {
      Session* const one = *at;
      if (!can_be_freed(*one)) {
        at = &one->next_retired;
        continue;
      }
      *at = one->next_retired;
      free_session(*one);
    }
  }
  if (empty && can_be_freed(session)) {
    free_session(session);
  } else {
    session.next_retired = retired;
    retired = &session;
  }
  lifecycle.unlock();
}

// Access to the session for a counter, even if this thread is already inside the recorder.
class SessionScope {
 public:
  explicit SessionScope(BlockKind kind) noexcept {
    if (active_session() == nullptr) return;
    ThreadWriter* const writer = thread_writer != nullptr ? thread_writer : register_thread(kind);
    if (writer == nullptr) return;
    if (!writer->busy.load(std::memory_order_relaxed)) {
      writer->busy.store(true, std::memory_order_relaxed);
      entered_ = writer;
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    session_ = active_session();
  }
  ~SessionScope() {
    if (entered_ != nullptr) leave_recorder(*entered_);
  }
  SessionScope(const SessionScope&) = delete;
  SessionScope& operator=(const SessionScope&) = delete;

  Session* session() const noexcept { return session_; }

 private:
  Session* session_ = nullptr;
  ThreadWriter* entered_ = nullptr;
};

}  // namespace

Recorder& recorder() noexcept {
  return the_recorder;
}

bool Recorder::start(const RecorderOptions& options) noexcept {
  const int host_errno = errno;
  const SignalShield shield;  // a file size limit must not kill the host with SIGXFSZ
  bool on = false;
  if (lifecycle.lock_for(kTaskTimeoutMs)) {
    on = start_locked(options);
    lifecycle.unlock();
  } else {
    complain(said_busy, "another start of the recording hangs in the file system");
  }
  errno = host_errno;
  return on;
}

RecordingEnd Recorder::stop() noexcept {
  RecordingEnd end;
  Session* session = current.load(std::memory_order_acquire);
  if (session == nullptr || session->pid != ::getpid()) return end;
  const bool answered = run_finish_hooks();
  if (!answered) {
    report(HealthKind::kSourceMissing, 0,
           "last readings: the driver, CUPTI or NVML did not answer within 1.5 s");
  }
  // The thread that gets the session ends it.
  session = current.exchange(nullptr, std::memory_order_acq_rel);
  if (session == nullptr) return end;
  remove_seal_signal();
  // A task that hangs finds the recorder off when it returns.
  static_cast<void>(stop_tasks(answered ? kTaskTimeoutMs : 0));
  const bool empty = close_gate();
  if (wait_for_finish(*session, kFinishTimeoutMs)) {
    end.rows = session->written_rows.load(std::memory_order_relaxed);
    end.dropped = session->dropped_rows.load(std::memory_order_relaxed);
    end.finished = session->write_failed.load(std::memory_order_relaxed) == 0;
  } else {
    complain(said_unfinished,
             "%s could not be finished in time; run 'tidemark recover' on its directory",
             session->trace_path);
  }
  free_or_retire(*session, empty);
  return end;
}

bool Recorder::flush_now(uint32_t timeout_ms) noexcept {
  const int host_errno = errno;
  waiting_for_flush.fetch_add(1, std::memory_order_seq_cst);
  Session* const session = active_session();
  const bool done = session != nullptr && wait_for_flush(*session, timeout_ms);
  waiting_for_flush.fetch_sub(1, std::memory_order_seq_cst);
  errno = host_errno;
  return done;
}

SealOutcome Recorder::seal(const SealRequest& request, uint32_t timeout_ms) noexcept {
  if (!is_seal_name(request.name)) return SealOutcome::kBadName;
  const int host_errno = errno;
  waiting_for_flush.fetch_add(1, std::memory_order_seq_cst);
  Session* const session = active_session();
  const SealOutcome outcome = session != nullptr && session->options.keeps_window()
                                  ? wait_for_seal(*session, request, timeout_ms)
                                  : SealOutcome::kNoWindow;
  waiting_for_flush.fetch_sub(1, std::memory_order_seq_cst);
  errno = host_errno;
  return outcome;
}

void Recorder::seal_after_error() noexcept {
  const SessionScope scope(BlockKind::kHealth);
  Session* const session = scope.session();
  if (session == nullptr || !session->options.keeps_window()) return;
  session->errors_to_seal.fetch_add(1, std::memory_order_relaxed);
  session->wake_writer();
}

uint32_t Recorder::intern_string(std::string_view text) noexcept {
  const BusyScope scope(BlockKind::kStrings);
  Session* const session = scope.session();
  return session == nullptr ? 0 : session->dictionaries.string(*session, text);
}

uint32_t Recorder::intern_module(uint64_t base, uint64_t size_bytes, std::string_view path,
                                 std::string_view build_id) noexcept {
  const BusyScope scope(BlockKind::kModules);
  Session* const session = scope.session();
  if (session == nullptr) return 0;
  Dictionaries& dictionaries = session->dictionaries;
  return dictionaries.module(*session,
                             Module{0, base, size_bytes, dictionaries.string(*session, path),
                                    dictionaries.string(*session, build_id)});
}

uint32_t Recorder::intern_frame(const FrameKey& frame) noexcept {
  const BusyScope scope(BlockKind::kFrames);
  Session* const session = scope.session();
  return session == nullptr ? 0 : session->dictionaries.frame(*session, frame);
}

uint32_t Recorder::intern_stack(std::span<const FrameKey> frames, uint32_t nn_module) noexcept {
  const BusyScope scope(BlockKind::kStacks);
  Session* const session = scope.session();
  return session == nullptr ? 0 : session->dictionaries.stack(*session, frames, nn_module);
}

bool Recorder::add_background_task(Task run, void* context, uint32_t period_ms) noexcept {
  return on() && add_task(run, context, period_ms);
}

void Recorder::run_tasks_soon() noexcept {
  run_task_soon(nullptr);
}

void Recorder::run_task_soon(Task run) noexcept {
  const int host_errno = errno;
  if (on()) hasten_tasks(run);
  errno = host_errno;
}

bool Recorder::add_finish_hook(Task run, void* context) noexcept {
  if (!lifecycle.lock_for(kTaskTimeoutMs)) return false;
  const bool room = hook_count < std::size(hooks);
  if (room) hooks[hook_count++] = {run, context};
  lifecycle.unlock();
  return room;
}

void Recorder::report(HealthKind kind, uint64_t value, std::string_view detail) noexcept {
  record(Health{now_ns(), value, intern_string(detail), kind});
}

void Recorder::count_dropped(BlockKind kind, uint64_t rows) noexcept {
  const SessionScope scope(kind);
  if (scope.session() != nullptr) scope.session()->count_dropped(kind, rows);
}

void Recorder::add_overhead_ns(uint64_t ns) noexcept {
  const SessionScope scope(BlockKind::kHealth);
  if (scope.session() != nullptr) {
    scope.session()->overhead_ns.fetch_add(ns, std::memory_order_relaxed);
  }
}

void Recorder::add_own_host_bytes(int64_t bytes) noexcept {
  const SessionScope scope(BlockKind::kHealth);
  if (scope.session() != nullptr) {
    scope.session()->own_host_bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
}

bool Recorder::cost(RecordingCost& out) const noexcept {
  const SessionScope scope(BlockKind::kHealth);
  Session* const session = scope.session();
  if (session == nullptr) return false;
  for (uint64_t& dropped : session->arena.header().dropped) {
    out.lost_rows += std::atomic_ref(dropped).load(std::memory_order_relaxed);
  }
  out.callbacks_ns = session->overhead_ns.load(std::memory_order_relaxed);
  out.writer_ns = session->writer_ns.load(std::memory_order_relaxed);
  out.host_bytes = session->host_bytes.load(std::memory_order_relaxed);
  return true;
}

const char* Recorder::trace_path() const noexcept {
  return latest_path;
}

}  // namespace tidemark::injector
