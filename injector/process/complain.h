// Messages to the user: one line on stderr per cause, never on stdout.
#pragma once

#include <atomic>
#include <cstddef>

namespace tidemark::injector {

// Writes "tidemark: …" in a single write, unless `said` was already set. Preserves errno.
void complain(std::atomic_flag& said, const char* format, ...) noexcept
    __attribute__((format(printf, 2, 3)));

// The last message of any thread, without "tidemark: ", even if it was not printed because `said`
// was set.
void copy_last_complaint(char* out, size_t size) noexcept;

}  // namespace tidemark::injector
