// Who this process is, so that recovery can tell whether it still lives.
#pragma once

#include <cstdint>

#include "proto/ring_layout.h"

namespace tidemark::injector {

void fill_identity(ring::RingHeader& header) noexcept;

}  // namespace tidemark::injector
