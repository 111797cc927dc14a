// Every thread that records has a place here, so that the thread that ends a recording can know
// that no other thread is inside it any more, and free its memory.
//
//   recording thread    busy = true      load gate        … record …      busy = false
//   ending thread                  gate = nullptr  barrier in all threads  wait until none is busy
//
// Either the recording thread sees the closed gate, or the ending thread sees that it is busy:
// membarrier() replaces the barrier that the recording thread does without. Places are in pages
// that are never freed and are reused by later threads. They are claimed and released without
// locks, even in signal handlers.
#pragma once

#include <cstdint>

#include "injector/recorder/thread_writer.h"

namespace tidemark::injector {

// Once per process, before the first record. Without the key for thread exits, a thread that ends
// keeps its last chunk until the recording ends.
void prepare_thread_register() noexcept;

// Call after closing the gate. True when no thread is inside a recording that was on before; no
// thread has a chunk of it then, either. False when that did not happen in time (a thread may have
// been suspended in the middle of a record) or cannot be known (Linux before 4.14). The gate must
// stay closed meanwhile.
bool wait_until_nobody_records(uint32_t timeout_ms) noexcept;

// The same for threads that read their Python frames, where the caller has closed another gate.
bool wait_until_nobody_walks(uint32_t timeout_ms) noexcept;

// In a forked child, where this is the only thread.
void forget_other_threads() noexcept;

// Rows lost since the last call because there was no memory for a place.
uint64_t take_turned_away(BlockKind kind) noexcept;

}  // namespace tidemark::injector
