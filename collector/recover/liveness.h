// Checks whether the process that owns a ring may still write to it.
#pragma once

#include "proto/ring_layout.h"

namespace tidemark {

// True if in doubt. `ring_fd` must be open for writing.
bool may_be_alive(int ring_fd, const ring::RingHeader& header);

}  // namespace tidemark
