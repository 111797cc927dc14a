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
  kRetries,   // segments were returned again and again, always for one that did not fit beside them
  kFraction,  // the allocator's own limit: set, or a request failed although the card had room
};

struct MemoryLimit {
  uint64_t bytes = 0;     // 0: not known, or nothing is left of another card
  bool at_least = false;  // it may be higher: only a refusal is known
  LimitSource source = LimitSource::kUnknown;

  bool is_known() const { return source != LimitSource::kUnknown; }
};

// The size of the segment that the allocator requests from the driver for a request (torch 2.0 to
// 2.13).
uint64_t segment_bytes_for(uint64_t requested);

// What a process needs of a card besides PyTorch's allocator: context, libraries, driver
// allocations. Other processes of the recording are not part of it.
struct NeedOutsideTorch {
  uint64_t bytes = 0;          // at the instant of the highest value
  bool is_assumed = false;     // kContextBytes and what was recorded: there are no readings
  bool leaves_others = false;  // other processes used the card, or may have
};

NeedOutsideTorch need_outside_torch(const ProcessModel& process, int64_t device);

MemoryLimit limit_of(const ProcessModel& process, const AllocationHistory& model);
// The same of a run that did not fail, on a card of another size that it has for itself. It is 0 if
// the process needs all of the card outside PyTorch.
MemoryLimit limit_on_card(const ProcessModel& process, int64_t device, uint64_t card_bytes);

}  // namespace tidemark
