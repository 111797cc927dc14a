// The segments of PyTorch's allocator, as the driver saw them.
//
// Without the bridge the allocator tells of its blocks only. Its segments are what libc10_cuda got
// from the driver: plain allocations, or mapped memory with expandable segments.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "analysis/names/dictionary.h"
#include "proto/rows.h"

namespace tidemark {

// `events` are a process's, in any order. Of each device those before `bridge_ns` count: from then
// on the allocator tells of its segments itself. In order of time.
std::vector<FrameworkEvent> torch_segments(std::span<const DriverEvent> events,
                                           const Dictionary& names, int64_t bridge_ns);

// When the bridge was attached, by its mark; INT64_MAX: never.
int64_t bridge_time(std::span<const Mark> marks, const Dictionary& names);

// Devices whose allocator was asked for its state when the recording began.
std::set<int64_t> devices_with_state(std::span<const Mark> marks, const Dictionary& names);

}  // namespace tidemark
