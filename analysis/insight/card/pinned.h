// Pinned host memory of a process: what the driver pinned, and what PyTorch's allocator made of it.
//
// PyTorch rounds each request up to a power of two and keeps freed blocks, so the driver pins more
// than the program asked for. What was asked for is not kept by PyTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/history/allocation_history.h"
#include "analysis/history/driver_history.h"
#include "analysis/insight/peak.h"

namespace tidemark {

struct ProcessModel;

// A sample of PyTorch's allocator of pinned memory.
struct TorchPinned {
  int64_t time_ns = 0;
  uint64_t held_bytes = 0;               // all of its blocks
  std::optional<uint64_t> in_use_bytes;  // at most as many; the rest is cached
};

struct PinnedMemory {
  Peak driver_peak;
  std::optional<TorchPinned> torch;  // when it held most, where it was asked
  std::vector<StackShare> stacks;    // at the driver's peak, most bytes first
};

PinnedMemory pinned_memory(const ProcessModel& process, size_t most_stacks);

// The same at any instant. The process must outlive it.
class PinnedHistory {
 public:
  explicit PinnedHistory(const ProcessModel& process);

  // What the driver pinned.
  const StepSeries& pinned() const { return pinned_; }
  const std::vector<TorchPinned>& torch() const { return torch_; }
  // The last sample at or before that time.
  std::optional<TorchPinned> torch_at(int64_t time_ns) const;
  // Who pinned what is pinned at that time, most bytes first.
  std::vector<StackShare> stacks_at(int64_t time_ns, size_t limit) const;

 private:
  const ProcessModel& process_;
  std::vector<uint32_t> rows_;  // in DriverModel::allocations
  StepSeries pinned_;
  std::vector<TorchPinned> torch_;  // by time
};

}  // namespace tidemark
