// The part of torch's header that a listener needs, as in torch 2.8 to 2.10.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace c10 {

using DeviceIndex = int8_t;
using MempoolId_t = std::pair<unsigned long long, unsigned long long>;

struct Device {
  int8_t type;
  int8_t index;
};

namespace cuda {

struct CUDAStream {
  Device device;
  int64_t id;
};
CUDAStream getCurrentCUDAStream(DeviceIndex device);

namespace CUDACachingAllocator {

struct TraceEntry {
  enum Action {
    ALLOC,
    FREE_REQUESTED,
    FREE_COMPLETED,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    SNAPSHOT,
    OOM
  };
  Action action_;
  int device_;
  size_t addr_;
  cudaStream_t stream_;
  size_t size_;
  MempoolId_t mempool_;
  std::string compile_context_;
};
using AllocatorTraceTracker = std::function<void(const TraceEntry&)>;

struct BlockInfo {
  size_t size = 0;
  size_t requested_size = 0;
  bool allocated = false;
  bool active = false;
};

struct SegmentInfo {
  DeviceIndex device = 0;
  size_t address = 0;
  size_t total_size = 0;
  size_t requested_size = 0;
  size_t allocated_size = 0;
  size_t active_size = 0;
  cudaStream_t stream = nullptr;
  bool is_large = false;
  bool is_expandable = false;
  MempoolId_t owner_private_pool_id = {0, 0};
  std::vector<BlockInfo> blocks;
};

struct AllocatorConfigInfo {
  double garbage_collection_threshold = 0;
  size_t max_split_size = SIZE_MAX;
  bool expandable_segments = false;
  std::string last_allocator_settings;
  std::vector<size_t> roundup_power2_divisions;
};

struct SnapshotInfo {
  std::vector<SegmentInfo> segments;
  AllocatorConfigInfo config_metadata;
};

struct Stat {
  int64_t current = 0;
};
using StatArray = std::array<Stat, 3>;  // all, small, large
struct DeviceStats {
  StatArray allocated_bytes;
  StatArray reserved_bytes;
  StatArray requested_bytes;
  int64_t num_alloc_retries = 0;
  int64_t num_ooms = 0;
};

class CUDAAllocator {
 public:
  virtual ~CUDAAllocator() = default;
  virtual bool initialized() = 0;
  virtual std::string name() = 0;
  virtual double getMemoryFraction(DeviceIndex device) = 0;
  virtual DeviceStats getDeviceStats(DeviceIndex device) = 0;
  virtual void cacheInfo(DeviceIndex device, size_t* largestBlock) = 0;
  virtual SnapshotInfo snapshot() = 0;
  virtual void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) = 0;
};

extern std::atomic<CUDAAllocator*> allocator;
inline CUDAAllocator* get() {
  return allocator.load();
}

}  // namespace CUDACachingAllocator
}  // namespace cuda
}  // namespace c10
