// The part of torch's header that tells of pinned host memory, as in torch 2.10.
#pragma once

#include <cstdint>

namespace at {

enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };

struct HostStat {
  int64_t current = 0;
};
struct HostStats {
  HostStat allocated_bytes;
  HostStat active_bytes;
};

struct HostAllocator {
  virtual ~HostAllocator() = default;
  virtual HostStats get_stats() = 0;
};

HostAllocator* getHostAllocator(DeviceType type);

}  // namespace at
