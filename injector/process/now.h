#pragma once

#include <cstdint>

namespace tidemark::injector {

// CLOCK_REALTIME, the time of every row.
int64_t now_ns() noexcept;

// CLOCK_MONOTONIC, for durations.
int64_t monotonic_ns() noexcept;

}  // namespace tidemark::injector
