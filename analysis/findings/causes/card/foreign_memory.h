// What processes outside the trace hold of a card, according to NVML.
#pragma once

#include <cstdint>

#include "analysis/findings/evidence.h"

namespace tidemark {

struct ForeignMemory {
  uint64_t bytes = 0;      // at most
  int64_t time_ns = 0;     // when
  int64_t since_ns = 0;    // from when on they held half of it or more, until then
  bool first = false;      // since_ns is the first reading
  uint64_t pid = 0;        // the one that held most of it
  uint64_t pid_bytes = 0;  // and how much
};

// `until_ns`: readings up to then.
ForeignMemory foreign_memory(const Evidence& evidence, const DeviceEvidence& d,
                             int64_t until_ns = INT64_MAX);

}  // namespace tidemark
