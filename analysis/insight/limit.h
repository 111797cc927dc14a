// How much memory PyTorch could have had on a device.
#pragma once

#include <cstdint>

#include "analysis/load/trace_model.h"

namespace tidemark {

enum class LimitSource : uint8_t {
  kUnknown,
  kCard,      // the card's size less what others held; nothing was refused
  kDriver,    // the driver refused: what was reserved then, and what was free
  kFraction,  // the allocator refused although the card had room
};

struct MemoryLimit {
  uint64_t bytes = 0;  // 0: not known
  LimitSource source = LimitSource::kUnknown;
};

// The segment that the allocator takes from the driver for a request (torch 2.0 to 2.13).
uint64_t segment_bytes_for(uint64_t requested);

MemoryLimit limit_of(const ProcessModel& process, const AllocationHistory& model);

}  // namespace tidemark
