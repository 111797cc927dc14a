// Configuration of the simulated machine, read from the environment once per process.
//
//   SIMGPU_DEVICES      number of cards                                       (2)
//   SIMGPU_MEMORY_MB    memory of each card available to programs             (16384)
//   SIMGPU_RESERVED_MB  memory of each card reserved by driver and firmware   (256)
//   SIMGPU_CONTEXT_MB   cost of a context                                     (448)
//   SIMGPU_KERNEL_US    duration of a kernel                                  (10)
//   SIMGPU_DIR          folder through which processes share the cards; without it each process
//                       has its own cards
//   SIMGPU_PID_OFFSET   added to the process ids that NVML reports, as seen from a container (0)
//   SIMGPU_NO_PINNED_TRACING  if set, CUPTI refuses to keep its buffers in host memory, like old
//                       versions
//   SIMGPU_CUPTI_SHARED 1: CUPTI allows several subscribers, like CUDA 13.3; refused: it has the
//                       calls for that, but the driver is too old
//   SIMGPU_KERNEL_TRACING_NS  what CUPTI adds to the launch of a kernel that it records        (0)
//   SIMGPU_NO_PAUSE     if set, CUPTI refuses to disable kinds of activity
//   SIMGPU_NO_LAUNCH_CALLBACKS  if set, CUPTI refuses callbacks of launches
//   SIMGPU_NVML_LOADS_SLOWLY  if set, loading NVML takes a while and reads the environment again
//   SIMGPU_HANG         calls that never return: see hang.h
//   SIMGPU_SHARED_MEMORY  if set, NVML reports no memory, as for a card that uses the host's
//   CUDA_VISIBLE_DEVICES  indices or UUIDs, as for the real driver
//
// A kernel whose name ends in `_<N>us` runs N microseconds, whatever SIMGPU_KERNEL_US says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simgpu/environment.h"

namespace tidemark::simgpu {

inline constexpr int kDriverVersion = 13000;
inline constexpr char kDriverVersionText[] = "580.65.06";
inline constexpr char kDeviceName[] = "Simulated GPU";

struct Config {
  int cards = 2;
  uint64_t memory_bytes = 0;
  uint64_t reserved_bytes = 0;
  uint64_t context_bytes = 0;
  int64_t kernel_ns = 0;
  int64_t pid_offset = 0;
  std::string dir;
  std::vector<int> visible;  // device ordinal -> card

  static Config from_environment(Lookup lookup);
};

// The UUID of a card, the same in every process: 16 bytes, and "GPU-…" as in NVML.
void card_uuid(int card, char bytes[16]);
std::string card_uuid_text(int card);

// The bus id in the format of the driver: "0000:01:00.0".
std::string card_bus_id(int card);

}  // namespace tidemark::simgpu
