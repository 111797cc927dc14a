#include "injector/recorder/task_thread.h"

#include <unistd.h>

#include <algorithm>

#include "injector/process/tool_thread.h"

namespace tidemark::injector {

namespace {

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
  // Tasks to run first, each once; full: all become due.
  std::atomic<Recorder::Task> hasten_some[4] = {};
  std::atomic<uint32_t> wake{0};
  std::atomic<uint32_t> running{0};
  // Work that another thread waits for; under lock, except for the number of the last one done.
  Errand errands[kMostErrands] = {};
  uint32_t errand_count = 0;
  bool errands_taken = false;
  bool errands_abandoned = false;  // they run, and the thread that waited has given up
  uint32_t errands_number = 0;
  std::atomic<uint32_t> errands_done{0};
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
  for (auto& hasten : board.hasten_some) {
    const Recorder::Task one = hasten.exchange(nullptr, std::memory_order_acq_rel);
    if (one == nullptr) continue;
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

// Runs what another thread waits for, before any task that is due.
void run_errands() {
  Errand work[kMostErrands];
  board.lock.lock();
  const uint32_t count = board.errands_taken ? 0 : board.errand_count;
  std::copy_n(board.errands, count, work);
  board.errands_taken = count != 0;
  const uint32_t number = board.errands_number;
  board.lock.unlock();
  if (count == 0) return;
  for (uint32_t i = 0; i < count; ++i) work[i].run(work[i].context);
  board.lock.lock();
  board.errand_count = 0;
  board.errands_taken = false;
  board.errands_abandoned = false;
  board.lock.unlock();
  board.errands_done.store(number, std::memory_order_release);
  wake_all(board.errands_done);
}

bool leave_empty_board() {
  board.lock.lock();
  const bool empty = board.count == 0 && board.errand_count == 0;
  if (empty) board.thread_started = false;
  board.lock.unlock();
  return empty;
}

void run_tasks(void*) noexcept {
  while (true) {
    const uint32_t woken = board.wake.load(std::memory_order_acquire);
    run_errands();
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

bool start_task_thread() noexcept {
  if (start_tool_thread("tidemark-tasks", 0, run_tasks, nullptr)) return true;
  board.lock.lock();
  board.thread_started = false;
  board.count = 0;
  board.errand_count = 0;
  board.lock.unlock();
  return false;
}

// Waits while `word` is `value`; false when the deadline has passed.
bool wait_until(const std::atomic<uint32_t>& word, uint32_t value, int64_t deadline_ms) noexcept {
  const int64_t left = deadline_ms - monotonic_ms();
  if (left <= 0) return false;
  wait_while(word, value, static_cast<uint32_t>(left));
  return true;
}

// Numbers wrap around.
bool has_reached(uint32_t done, uint32_t number) noexcept {
  return static_cast<int32_t>(done - number) >= 0;
}

// What has not begun, because a task before it hangs, is taken back. True: it was done after all.
bool give_up(uint32_t number) noexcept {
  board.lock.lock();
  const bool done = has_reached(board.errands_done.load(std::memory_order_acquire), number);
  if (!done && board.errands_number == number && board.errand_count != 0) {
    if (board.errands_taken) {
      board.errands_abandoned = true;
    } else {
      board.errand_count = 0;
    }
  }
  board.lock.unlock();
  return done;
}

void wake_task_thread() noexcept {
  board.wake.fetch_add(1, std::memory_order_release);
  wake_all(board.wake);
}

}  // namespace

bool add_task(Recorder::Task run, void* context, uint32_t period_ms) noexcept {
  board.lock.lock();
  const bool room = board.count < std::size(board.entries);
  if (room) board.entries[board.count++] = {run, context, std::max(period_ms, 1U), monotonic_ms()};
  const bool must_start = room && !board.thread_started;
  if (must_start) board.thread_started = true;
  board.lock.unlock();
  if (must_start && !start_task_thread()) return false;
  wake_task_thread();
  return room;
}

bool run_on_task_thread(std::span<const Errand> work, uint32_t timeout_ms) noexcept {
  const auto count = static_cast<uint32_t>(std::min(work.size(), kMostErrands));
  if (count == 0) return true;
  const int64_t deadline = monotonic_ms() + timeout_ms;
  bool must_start = false;
  uint32_t number = 0;
  while (number == 0) {
    const uint32_t done = board.errands_done.load(std::memory_order_acquire);
    board.lock.lock();
    const bool free = board.errand_count == 0;
    const bool hangs = board.errands_abandoned;
    if (free) {
      std::copy_n(work.begin(), count, board.errands);
      board.errand_count = count;
      if (++board.errands_number == 0) ++board.errands_number;  // 0: none
      number = board.errands_number;
      must_start = !board.thread_started;
      if (must_start) board.thread_started = true;
    }
    board.lock.unlock();
    if (!free && (hangs || !wait_until(board.errands_done, done, deadline))) return false;
  }
  if (must_start && !start_task_thread()) return false;
  wake_task_thread();
  while (true) {
    const uint32_t done = board.errands_done.load(std::memory_order_acquire);
    if (has_reached(done, number)) return true;
    if (!wait_until(board.errands_done, done, deadline)) break;
  }
  return give_up(number);
}

namespace {

bool hasten_one(Recorder::Task run) noexcept {
  for (auto& hasten : board.hasten_some) {
    Recorder::Task known = nullptr;
    if (hasten.compare_exchange_strong(known, run, std::memory_order_acq_rel) || known == run) {
      return true;
    }
  }
  return false;
}

}  // namespace

void hasten_tasks(Recorder::Task run) noexcept {
  if (run == nullptr || !hasten_one(run)) board.hasten_all.store(true, std::memory_order_release);
  wake_task_thread();
}

void run_task_in(Recorder::Task run, uint32_t ms) noexcept {
  const int64_t next_ms = monotonic_ms() + ms;
  board.lock.lock();
  for (uint32_t i = 0; i < board.count; ++i) {
    if (board.entries[i].run == run) board.entries[i].next_ms = next_ms;
  }
  board.lock.unlock();
}

bool stop_tasks(uint32_t timeout_ms) noexcept {
  board.lock.lock();
  board.count = 0;
  board.lock.unlock();
  const int64_t deadline = monotonic_ms() + timeout_ms;
  while (board.running.load(std::memory_order_acquire) != 0) {
    if (!wait_until(board.running, 1, deadline)) return false;
  }
  wake_task_thread();  // it finds no task, and ends
  return true;
}

bool wait_for_idle_tasks(uint32_t timeout_ms) noexcept {
  const int64_t deadline = monotonic_ms() + timeout_ms;
  while (true) {
    board.lock.lock();
    const bool idle = board.running.load(std::memory_order_acquire) == 0 && board.errand_count == 0;
    board.lock.unlock();
    if (idle) return true;
    if (monotonic_ms() >= deadline) return false;
    ::usleep(1000);
  }
}

void forget_tasks() noexcept {
  board.count = 0;
  board.thread_started = false;
  board.hasten_all.store(false, std::memory_order_relaxed);
  for (auto& hasten : board.hasten_some) hasten.store(nullptr, std::memory_order_relaxed);
  board.running.store(0, std::memory_order_relaxed);
  board.errand_count = 0;
  board.errands_taken = false;
  board.errands_abandoned = false;
}

}  // namespace tidemark::injector
