// Asks the driver what its callbacks do not say: devices, pools, graph memory, sizes of imports.
//
// Task thread only, and never a call that would make a context. Calls are tidemark's own
// (OwnScope).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark::injector {

struct DeviceFacts {
  static constexpr size_t kUuidText = 37;
  char name[128] = "";
  char uuid[kUuidText] = "";  // without NVML's prefix
  char bus[32] = "";
  uint64_t total_bytes = 0;
};
// Any thread, when the driver is awake.
bool ask_device(int64_t ordinal, DeviceFacts& out) noexcept;

// Whether cuInit is over. Waits for one that is under way.
bool driver_is_awake() noexcept;

// Devices on which this process has a primary context, as bits.
uint64_t devices_with_context() noexcept;

// For a recording that begins late: what exists becomes rows marked as seeded.
void record_existing_contexts() noexcept;

// One round: new devices get their Device row (and NVML handle), imports their size. Cheap when
// nothing is new. True when there was a new device.
bool query_driver() noexcept;

// Counter rows for pools and graph memory that are in use.
void sample_pools() noexcept;

// Looks for devices on which this process has a primary context. Only needed while there are no
// callbacks to tell.
void look_for_used_devices() noexcept;

void reset_driver_queries() noexcept;

}  // namespace tidemark::injector
