#pragma once

#include <cstdint>

namespace tidemark::injector {

// CLOCK_REALTIME, the time of every row.
int64_t now_ns() noexcept;

}  // namespace tidemark::injector
