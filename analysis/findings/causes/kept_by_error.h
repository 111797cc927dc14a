// What a pass had computed when it ran out of memory, and what the program still has of it later:
// an exception that is stored keeps its traceback, and that the variables of every function in it.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "analysis/findings/evidence.h"

namespace tidemark {

struct KeptByError {
  const FailedAllocation* failure = nullptr;  // of the pass
  std::vector<uint32_t> rows;
  uint64_t bytes = 0;
  std::unordered_map<uint32_t, uint64_t> by_stack;
  uint64_t at_later_failure_bytes = 0;  // alive when the last request failed, after this one

  // Whether that request would have fitted without it.
  bool fails_again(const DeviceEvidence& d) const;
};

// Of the error that keeps most; nothing if that is little.
std::optional<KeptByError> kept_by_error(const DeviceEvidence& d);

// Whether the last request failed for it.
bool fails_for_earlier_error(const DeviceEvidence& d);

}  // namespace tidemark
