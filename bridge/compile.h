// Runs the user's C++ compiler.
#pragma once

#include <limits.h>

#include <cstddef>

#include "bridge/environment.h"
#include "bridge/torch_place.h"

namespace tidemark::bridge {

// The path of $CXX, c++, g++ or clang++, whichever exists. False if none does.
bool find_compiler(const Environment& environment, char (&path)[PATH_MAX]) noexcept;

// Compiles `source` to `library`, both in a folder of the caller alone that also contains
// torch_bridge_abi.h. On failure `reason` has the first error of the compiler.
bool compile_bridge(const Environment& environment, const TorchPlace& torch, const char* compiler,
                    const char* source, const char* library, char* reason,
                    size_t reason_size) noexcept;

}  // namespace tidemark::bridge
