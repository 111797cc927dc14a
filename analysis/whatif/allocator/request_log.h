// The requests of a program to its caching allocator, in order: the part of a recording that does
// not depend on the allocator's settings.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/whatif/allocator/segment_addresses.h"

namespace tidemark {

enum class RequestKind : uint8_t {
  kAllocate,    // subject: allocation
  kFree,        // freed and at once reusable; subject: allocation
  kRelease,     // freed, but another stream still uses it; subject: allocation
  kComplete,    // no stream uses it any longer; subject: allocation
  kEmptyCache,  // torch.cuda.empty_cache()
  kRetirePool,  // a private pool has lost its owner; subject: pool
  kFail,        // an allocation that failed in the recording; subject: allocation
};

struct Request {
  uint32_t subject = 0;
  RequestKind kind = RequestKind::kAllocate;
};

struct RequestedBlock {
  uint64_t bytes = 0;
  uint64_t stream = 0;
  uint32_t pool = 0;
};

struct RequestLog {
  std::vector<RequestedBlock> blocks;  // by allocation: those of the model, then failed ones
  std::vector<int64_t> failed_ns;      // of the failed ones
  std::vector<Request> requests;
  std::vector<PlacedSegment> segments;  // as the driver placed them; empty: the first are not known
  uint64_t events = 0;                  // of the recording
};

}  // namespace tidemark
