// A copy of the environment that our threads can read safely.
//
// getenv() concurrent with a setenv() of the host is a race in which glibc before 2.41 reads freed
// memory. So the environment is copied once, on the host thread that initialises CUDA. Before that,
// and in a library that is injected later, it is the environment that the process was started with,
// which the kernel keeps. Nothing else in the injector reads the environment, which
// scripts/check_includes.py checks.
#pragma once

namespace tidemark::injector {

// Call on a host thread. A forked child makes its own copy.
void keep_environment() noexcept;

// From the copy. Any thread.
const char* process_environment(const char* name) noexcept;

// Calls visit("NAME=value", context) for each.
void each_variable(void (*visit)(const char* entry, void* context), void* context) noexcept;

}  // namespace tidemark::injector
