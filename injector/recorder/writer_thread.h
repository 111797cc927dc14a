// The two threads of the recorder: the writer, which drains the ring, and the task thread.
#pragma once

#include <cstdint>

#include "injector/recorder/recorder.h"

namespace tidemark::injector {

// Drains the ring until the session stops. False when there is no thread or memory.
bool start_writer(Session& session) noexcept;

// Sends a request to the writer and waits for it; false on timeout.
bool wait_for_flush(Session& session, uint32_t timeout_ms) noexcept;
bool wait_for_finish(Session& session, uint32_t timeout_ms) noexcept;

// The task thread starts with the first task.
bool add_task(Recorder::Task run, void* context, uint32_t period_ms) noexcept;
// Makes one task due now, ahead of all others; nullptr: makes all tasks due.
void hasten_tasks(Recorder::Task run) noexcept;
// When it returns true no task runs any more; false if one still runs after the timeout.
bool stop_tasks(uint32_t timeout_ms) noexcept;
// In a forked child, where these threads do not exist.
void forget_tasks() noexcept;

}  // namespace tidemark::injector
