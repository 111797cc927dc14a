// Every thread that records has a place here, so that whoever ends a recording can know that no
// thread stands in it any more, and give its memory back.
//
//   a thread            busy = true      load gate        … record …      busy = false
//   who ends a recording              gate = nullptr  barrier in all threads  until nobody is busy
//
// Either the thread sees the gate closed, or it is seen to be busy: membarrier() stands in for the
// barrier that the thread does without. Places lie in pages that are never given back and are used
// again by later threads. They are claimed and left without locks, also in signal handlers.
#pragma once

#include <cstdint>

#include "injector/recorder/thread_writer.h"

namespace tidemark::injector {

// Once per process, before the first record. Without a key for thread exits a thread that ends
// keeps its last chunk until the recording ends.
void prepare_thread_register() noexcept;

// After the gate was closed: true when no thread is inside a recording that was on before, and then
// none has a chunk of it either. False when that did not come about in time, or cannot be known
// (Linux before 4.14): a thread may have been suspended in the middle of a record. The gate must
// stay closed meanwhile.
bool wait_until_nobody_records(uint32_t timeout_ms) noexcept;

// In the child of a fork, which has this thread alone.
void forget_other_threads() noexcept;

// Rows lost since the last call because there was no memory for a place.
uint64_t take_turned_away(BlockKind kind) noexcept;

}  // namespace tidemark::injector
