// What the cards say now, for somebody who looks at the process from outside: NVML alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tidemark::injector {

inline constexpr size_t kMaxLiveDevices = 16;

struct LiveDevice {
  int64_t ordinal = 0;
  char name[128] = "";
  uint64_t total_bytes = 0;
  uint64_t used_bytes = 0;     // by everybody
  uint64_t process_bytes = 0;  // by this process
  bool used_known = false;
  bool process_known = false;
};

// Of the devices that this process has a context on; how many. Opens NVML and lets go of it again:
// milliseconds. Control thread.
size_t read_live(std::span<LiveDevice> out) noexcept;

}  // namespace tidemark::injector
