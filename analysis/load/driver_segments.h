// The segments of PyTorch's allocator, from the driver's events.
//
// Without the bridge the allocator reports only its blocks. Its segments are what libc10_cuda
// allocated from the driver: plain allocations, or mapped memory with expandable segments.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "analysis/names/dictionary.h"
#include "proto/rows.h"

namespace tidemark {

// `events` are those of one process, in any order. Only those before `bridge_ns` are used: from
// then on the allocator reports its segments itself. The result is in order of time.
std::vector<FrameworkEvent> torch_segments(std::span<const DriverEvent> events,
                                           const Dictionary& names, int64_t bridge_ns);

// When the bridge was attached, from its mark; INT64_MAX: never.
int64_t bridge_time(std::span<const Mark> marks, const Dictionary& names);

// Devices whose allocator state was captured when the recording began.
std::set<int64_t> devices_with_state(std::span<const Mark> marks, const Dictionary& names);

}  // namespace tidemark
