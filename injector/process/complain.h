// The recorder's voice: one line on stderr per cause, never stdout.
#pragma once

#include <atomic>
#include <cstddef>

namespace tidemark::injector {

// Writes "tidemark: …" in one piece, unless `said` was set already. Keeps errno.
void complain(std::atomic_flag& said, const char* format, ...) noexcept
    __attribute__((format(printf, 2, 3)));

// What was complained of last by any thread, also when it was not said again, without "tidemark: ".
void copy_last_complaint(char* out, size_t size) noexcept;

}  // namespace tidemark::injector
