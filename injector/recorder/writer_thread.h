// The recorder's two threads: the writer, which empties the ring, and the one that runs tasks.
#pragma once

#include <cstdint>

#include "injector/recorder/recorder.h"

namespace tidemark::injector {

// Empties the ring until the session is told to stop. False when there is no thread or memory.
bool start_writer(Session& session) noexcept;

// Asks the writer for something and waits; false when the time runs out.
bool wait_for_flush(Session& session, uint32_t timeout_ms) noexcept;
bool wait_for_finish(Session& session, uint32_t timeout_ms) noexcept;

// The task thread starts with the first task.
bool add_task(Recorder::Task run, void* context, uint32_t period_ms) noexcept;
// This one is due now, before all others; nullptr: all of them are.
void hasten_tasks(Recorder::Task run) noexcept;
// No task runs after it returned true; false when one still runs after the timeout.
bool stop_tasks(uint32_t timeout_ms) noexcept;
// In a forked child: the threads are the parent's.
void forget_tasks() noexcept;

}  // namespace tidemark::injector
