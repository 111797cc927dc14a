// Checks whether the process that owns a ring may still write to it.
#pragma once

#include <cstdint>

#include "proto/ring_layout.h"

namespace tidemark {

enum class Liveness : uint8_t {
  kDead,
  kMayLive,           // true if in doubt
  kMayLiveElsewhere,  // on another machine, or on this one before it was restarted
};

// `ring_fd` must be open for writing. A process of another machine counts as dead only if `asked`
// (the user has said so, and not a command that merely reads) and it has been silent for a while:
// some network file systems have no locks, and machines may share a host name.
Liveness check_liveness(int ring_fd, const ring::RingHeader& header, bool asked);

}  // namespace tidemark
