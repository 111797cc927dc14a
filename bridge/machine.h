// What decides whether a bridge that was built on one machine loads on another: nodes of a cluster
// share the home directory, but not always the system.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark::bridge {

// "x86_64-glibc2.39-stdcxx6.0.33", for a file name. The same in every process of a machine.
void describe_machine(char* out, size_t size) noexcept;

// Differs between machines, and stays the same on one.
uint64_t machine_identity() noexcept;

}  // namespace tidemark::bridge
