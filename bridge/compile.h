// Runs the user's C++ compiler.
#pragma once

#include <cstddef>

#include "bridge/torch_place.h"

namespace tidemark::bridge {

// Compiles `source` to `library` (torch_bridge_abi.h is in the same folder). On failure `reason`
// says why in one line: no compiler, or the first error.
bool compile_bridge(const TorchPlace& torch, const char* source, const char* library, char* reason,
                    size_t reason_size) noexcept;

}  // namespace tidemark::bridge
