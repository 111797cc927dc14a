// What the card says about itself: memory of the whole device and of this process, through NVML.
//
// The only source that includes everything (contexts, code, other processes), and the only one that
// is left when another tool holds CUPTI. All of it runs on the task thread: NVML takes locks of the
// driver and may hang while a card resets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tidemark::injector {

struct DeviceMemory {
  uint64_t total_bytes = 0;
  uint64_t reserved_bytes = 0;  // by driver and firmware; 0 when NVML is too old to tell
  uint64_t free_bytes = 0;
  uint64_t used_bytes = 0;  // without the reserved bytes where those are known
};

// Loads libnvidia-ml and initialises it: milliseconds to seconds. False: not there, said in the
// trace once.
bool start_nvml() noexcept;
bool nvml_started() noexcept;

// Ties a CUDA device to NVML's handle by UUID (the two libraries number cards differently), else by
// bus id. Returns what NVML puts in front of the UUID ("GPU-", or "MIG-" for a part of a card),
// null when it does not know the device.
const char* attach_nvml_device(int64_t device, std::string_view uuid_text,
                               const char* bus_id) noexcept;

// The last reading of a device; zeros when there is none. Any thread.
DeviceMemory latest_device_memory(int64_t device) noexcept;

// Whether anybody reads at all, and how often it was done; waits for the next time, at most so
// long.
void expect_readings(bool expected) noexcept;
bool readings_expected() noexcept;
uint32_t readings_so_far() noexcept;
void wait_for_reading(uint32_t seen, uint32_t timeout_ms) noexcept;

// Whether the use of any card is far from what it was at the last list of processes.
bool device_memory_moved() noexcept;

// Reads every attached device and records Counter rows. False when there was none to read.
bool sample_device_memory() noexcept;
void sample_process_memory() noexcept;

// One process in a list of NVML, whatever version of the list it came in.
struct ListedProcess {
  uint64_t pid = 0;
  uint64_t used_bytes = 0;
  bool used_known = false;
};

// Which of the listed processes is this one. In a container NVML may list pids of the host, which
// this process does not know of itself: if it is not in the list by pid, and only one is there,
// that one is it. -1: cannot tell.
int find_own_process(std::span<const ListedProcess> listed, uint64_t own_pid) noexcept;

// The end of a recording: lets go of NVML.
void stop_nvml() noexcept;

// Forgets handles and state, in a forked child.
void reset_nvml() noexcept;

}  // namespace tidemark::injector
