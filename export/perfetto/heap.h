// Flame graphs of a Perfetto trace: live memory by stack, at the peak and at the errors.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>

#include "analysis/history/driver_model.h"
#include "analysis/history/memory_state.h"
#include "export/perfetto/tracks.h"

namespace tidemark {

struct HeapSum {
  uint64_t bytes = 0;
  uint64_t count = 0;
};
// Keyed by stack, or by one of these for blocks without a stack.
using HeapSums = std::map<uint64_t, HeapSum>;
inline constexpr uint64_t kNoStack = uint64_t{1} << 32;
inline constexpr uint64_t kBeforeHistory = uint64_t{1} << 33;

// Live blocks of the framework's allocator, and the driver's live allocations on a device.
HeapSums sums_by_stack(const AllocationHistory& model, const MemoryState& state);
HeapSums sums_by_stack(const DriverModel& driver, int64_t device, int64_t time_ns);

// One dump. Perfetto keeps running sums per stack within a sequence, so each dump has its own
// sequence.
void write_heap_dump(PerfettoPackets& packets, const ExportProcess& process, int32_t fake_pid,
                     const HeapSums& sums, std::string_view heap_name, int64_t time_ns);

}  // namespace tidemark
