// The task thread: it samples the driver, CUPTI and NVML, and runs what ends a recording.
//
// Those may hang, for as long as the machine is up (a card that fell off the bus). So nobody waits
// for this thread without a deadline, and no lock is held while a task runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "injector/recorder/recorder.h"

namespace tidemark::injector {

// The task thread starts with the first task.
bool add_task(Recorder::Task run, void* context, uint32_t period_ms) noexcept;
// The next run of a task, from a run of it on.
void run_task_in(Recorder::Task run, uint32_t ms) noexcept;
// Makes one task due now, ahead of all others; nullptr: makes all tasks due.
void hasten_tasks(Recorder::Task run) noexcept;
// Runs work on the task thread, ahead of its tasks, and waits for it. False: it could not run or
// had not returned by the deadline; what has not begun by then never runs.
struct Errand {
  Recorder::Task run = nullptr;
  void* context = nullptr;
};
inline constexpr size_t kMostErrands = 8;
bool run_on_task_thread(std::span<const Errand> work, uint32_t timeout_ms) noexcept;
// When it returns true no task runs any more; false if one still runs after the timeout.
bool stop_tasks(uint32_t timeout_ms) noexcept;
// Waits for tasks and errands that others have given up waiting for. False: one still runs.
bool wait_for_idle_tasks(uint32_t timeout_ms) noexcept;
// In a forked child, where the thread does not exist.
void forget_tasks() noexcept;

}  // namespace tidemark::injector
