// One request to a program that serves, far larger than the usual ones, that makes the peak or no
// longer fits: a prompt of a hundred times the usual length.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "analysis/findings/evidence.h"

namespace tidemark {

struct UnusualRequest {
  uint32_t stack = 0;        // of the line that called the model
  uint64_t bytes = 0;        // of its largest block
  uint64_t usual_bytes = 0;  // of the same line's block in other requests: half are no larger
  uint64_t saved_bytes = 0;  // at the peak, had it been as large as those
  uint64_t times() const { return (bytes + usual_bytes / 2) / usual_bytes; }
};

// At the last error or, without one, at the allocated peak; none: what is there is nothing unusual.
std::optional<UnusualRequest> unusual_request(const DeviceEvidence& d);

// "one request asked for 171 times the usual size (600.0 MiB, usually 3.5 MiB)"
std::string unusual_text(const UnusualRequest& request);

Advice bound_request(const DeviceEvidence& d, const UnusualRequest& request);

}  // namespace tidemark
