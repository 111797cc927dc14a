// The writer thread, which drains the ring into the trace.
#pragma once

#include <cstdint>

#include "injector/recorder/recorder.h"

namespace tidemark::injector {

// Drains the ring until the session stops. False when there is no thread or memory.
bool start_writer(Session& session) noexcept;

// Sends a request to the writer and waits for it; false on timeout.
bool wait_for_flush(Session& session, uint32_t timeout_ms) noexcept;
SealOutcome wait_for_seal(Session& session, const SealRequest& request,
                          uint32_t timeout_ms) noexcept;
bool wait_for_finish(Session& session, uint32_t timeout_ms) noexcept;

}  // namespace tidemark::injector
