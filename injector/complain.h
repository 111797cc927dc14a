// The recorder's voice: one line on stderr per cause, never stdout.
#pragma once

#include <atomic>

namespace tidemark::injector {

// Writes "tidemark: …" in one piece, unless `said` was set already. Keeps errno.
void complain(std::atomic_flag& said, const char* format, ...) noexcept
    __attribute__((format(printf, 2, 3)));

}  // namespace tidemark::injector
