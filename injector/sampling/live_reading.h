// Current readings of the cards for a tool outside the process: from NVML alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tidemark::injector {

inline constexpr size_t kMaxLiveDevices = 16;

struct LiveDevice {
  int64_t ordinal = 0;
  char name[128] = "";
  char uuid[48] = "";  // with NVML's prefix
  uint64_t total_bytes = 0;
  uint64_t used_bytes = 0;     // by all processes
  uint64_t process_bytes = 0;  // by this process
  bool used_known = false;
  bool process_known = false;
};

// Reads the devices on which this process has a context. Opens and closes NVML, which takes
// milliseconds; on the task thread, since NVML and the driver may hang. False: they did not answer
// in time. Control thread.
struct LiveReading {
  std::array<LiveDevice, kMaxLiveDevices> devices;
  size_t count = 0;
};
bool read_live(LiveReading& out) noexcept;

}  // namespace tidemark::injector
