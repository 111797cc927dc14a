// Samples the memory of whole devices and of their processes through NVML.
//
// The only source that includes everything (contexts, code, other processes), and the only one left
// when another tool holds CUPTI. All of it runs on the task thread: NVML takes locks of the driver
// and may hang while a card resets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tidemark::injector {

struct DeviceMemory {
  uint64_t total_bytes = 0;
  uint64_t reserved_bytes = 0;  // by driver and firmware; 0 if NVML is too old to report it
  uint64_t free_bytes = 0;
  uint64_t used_bytes = 0;  // without the reserved bytes if those are known
};

// Only loads libnvidia-ml. Call on a host thread.
void load_nvml() noexcept;
// Loads and initialises libnvidia-ml, which takes milliseconds to seconds. False: not available,
// reported once in the trace.
bool start_nvml() noexcept;
bool nvml_started() noexcept;

// Finds the NVML handle of a CUDA device by UUID (the two libraries number cards differently), or
// else by bus id. Returns NVML's prefix of the UUID ("GPU-", or "MIG-" for a part of a card), or
// null if NVML does not know the device.
const char* attach_nvml_device(int64_t device, std::string_view uuid_text,
                               const char* bus_id) noexcept;

// The last reading of a device; zeros if there is none. Any thread.
DeviceMemory latest_device_memory(int64_t device) noexcept;

// Whether readings are taken at all, the number of readings so far, and waiting for the next one
// for at most `timeout_ms`.
void expect_readings(bool expected) noexcept;
bool readings_expected() noexcept;
uint32_t readings_so_far() noexcept;
void wait_for_reading(uint32_t seen, uint32_t timeout_ms) noexcept;

// Whether the use of any card has changed a lot since its processes were last listed.
bool device_memory_moved() noexcept;

// Reads every attached device and records Counter rows. False if there was none to read.
bool sample_device_memory() noexcept;
void sample_process_memory() noexcept;

// A process in a list from NVML, whatever the version of the list.
struct ListedProcess {
  uint64_t pid = 0;
  uint64_t used_bytes = 0;
  bool used_known = false;
};

// Index of this process in the list. In a container NVML may list host pids, which this process
// does not know: if its pid is not in the list and there is only one entry, it is that one. -1:
// cannot tell.
int find_own_process(std::span<const ListedProcess> listed, uint64_t own_pid) noexcept;

// Ends sampling and shuts NVML down.
void stop_nvml() noexcept;

// Forgets handles and state, in a forked child.
void reset_nvml() noexcept;

}  // namespace tidemark::injector
