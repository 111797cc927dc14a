// How much memory PyTorch could have reserved on a device.
#pragma once

#include <cstdint>

#include "analysis/load/trace_model.h"

namespace tidemark {

// What a process takes of a card besides its tensors, where there are no readings of it: 631 MiB on
// an H200, with PyTorch. The context, loaded code and what the driver keeps.
inline constexpr uint64_t kContextBytes = uint64_t{640} << 20;

enum class LimitSource : uint8_t {
  kUnknown,
  kCard,      // the card's size minus what others held; no request failed
  kDriver,    // the driver failed a request: reserved plus free memory at that time
  kFraction,  // the allocator's own limit: set, or a request failed although the card had room
};

struct MemoryLimit {
  uint64_t bytes = 0;     // 0: not known
  bool at_least = false;  // it may be higher: only a refusal is known
  LimitSource source = LimitSource::kUnknown;
};

// The size of the segment that the allocator requests from the driver for a request (torch 2.0 to
// 2.13).
uint64_t segment_bytes_for(uint64_t requested);

MemoryLimit limit_of(const ProcessModel& process, const AllocationHistory& model);
// The same on another card, of which a run that did not fail would use as much besides.
MemoryLimit limit_on_card(const ProcessModel& process, const AllocationHistory& model,
                          uint64_t card_bytes);

}  // namespace tidemark
