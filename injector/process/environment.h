// The environment as a thread of ours may read it.
//
// getenv() beside a setenv() of the host's is a race that glibc before 2.41 loses by reading freed
// memory. So it is copied once, on the host's thread that initialises CUDA; a library that comes
// late reads the one that the process was started with, which the kernel keeps.
#pragma once

namespace tidemark::injector {

// On a thread of the host's. A forked child keeps its own.
void keep_environment() noexcept;
// On a thread of ours; nothing happens when one is kept.
void keep_first_environment() noexcept;

// From what is kept; the process's own as long as nothing is.
const char* process_environment(const char* name) noexcept;

// Calls visit("NAME=value", context) for each.
void each_variable(void (*visit)(const char* entry, void* context), void* context) noexcept;

}  // namespace tidemark::injector
