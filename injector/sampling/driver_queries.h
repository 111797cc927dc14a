// Queries the driver for what its callbacks do not report: devices, pools, graph memory, sizes of
// imports.
//
// Task thread only, and never a call that would create a context. The calls are marked as
// tidemark's own (OwnScope).
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
// Any thread, once cuInit is over.
bool ask_device(int64_t ordinal, DeviceFacts& out) noexcept;

// Whether cuInit is over. Waits for one in progress.
bool driver_is_initialised() noexcept;

// Bit mask of devices on which this process has a primary context.
uint64_t devices_with_context() noexcept;

// For a recording that begins late: existing primary contexts become rows marked as seeded. Other
// contexts show only when an allocation is made in them.
void record_existing_contexts() noexcept;

// One round: new devices get their Device row (and NVML handle), imports their size. Cheap when
// nothing is new. True if there was a new device.
bool query_driver() noexcept;

// What cuMemGetInfo says of a device on which this process has a primary context; false without
// one. For cards whose memory NVML does not report, because they share the host's.
bool ask_device_memory(int64_t device, uint64_t& free_bytes, uint64_t& total_bytes) noexcept;

// Counter rows for pools and graph memory that are in use.
void sample_pools() noexcept;

// Looks for devices on which this process has a primary context. Needed only without driver
// callbacks.
void look_for_used_devices() noexcept;

void reset_driver_queries() noexcept;

}  // namespace tidemark::injector
