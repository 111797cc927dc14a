// Facts about the life of a block that several rules of the categories use.
#pragma once

#include "analysis/history/allocation_history.h"

namespace tidemark {

inline bool is_older(const Allocation& a) {
  return a.seeded && a.stack == 0;
}
inline bool stays(const Allocation& a) {
  return a.release == kNever;
}
inline bool meets(const Allocation& a, uint32_t event) {
  return event != kNever && event < a.release;
}

// Events in which two blocks are freed: what the last operation of a backward pass has used.
inline constexpr uint32_t kLastFrees = 4;

// What cuBLAS takes for each stream and keeps (PyTorch's CUDABlas.cpp and CublasHandlePool.cpp):
// 32 MiB on Hopper and later, :4096:2:16:8 before.
inline constexpr uint64_t kOddWorkspace = (4096 * 2 + 16 * 8) * 1024;
inline bool is_workspace_size(uint64_t bytes) {
  return bytes == uint64_t{32} << 20 || bytes == kOddWorkspace;
}

// What cublasLt takes beside it (CublasHandlePool.cpp).
inline constexpr uint64_t kOfCublasLt = 1 << 20;

}  // namespace tidemark
