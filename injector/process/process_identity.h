// Identifies this process, so that recovery can tell whether it is still alive.
#pragma once

#include <cstdint>

#include "proto/ring_layout.h"

namespace tidemark::injector {

void fill_identity(ring::RingHeader& header) noexcept;

}  // namespace tidemark::injector
