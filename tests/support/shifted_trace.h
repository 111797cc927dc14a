// Traces with wrong clocks, for tests of their alignment.
#pragma once

#include <string>

#include "proto/rows.h"

namespace tidemark::test {

// Rewrites a trace as if the clock of its host had been ahead by `offset_ns` at `at_ns` and had run
// fast by `drift_ppb`. False when it cannot be read or written.
bool shift_clock(const std::string& in, const std::string& out, int64_t at_ns, int64_t offset_ns,
                 int64_t drift_ppb);

}  // namespace tidemark::test
