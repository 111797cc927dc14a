// What a library other than PyTorch has allocated on a card in the same process, as CuPy's pool.
#pragma once

#include <cstdint>
#include <string>

#include "analysis/findings/evidence.h"

namespace tidemark {

struct LibraryMemory {
  std::string owner;  // "cupy"; empty: there is none
  uint64_t bytes = 0;
  uint64_t allocations = 0;
  uint32_t stack = 0;  // of most of it
};

// The one that holds most at an instant.
LibraryMemory library_memory(const DeviceEvidence& d, int64_t time_ns);

// "cupy holds 89.8 GiB of the card in this process, outside PyTorch (12 allocations)"
std::string library_text(const LibraryMemory& library);

Advice shrink_library(const DeviceEvidence& d, const LibraryMemory& library);

}  // namespace tidemark
