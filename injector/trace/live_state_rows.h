// Helpers shared by the files of LiveState (live_state.h).
#pragma once

#include <cstdint>

#include "injector/trace/live_state.h"

namespace tidemark::injector {

// What a key of an object of the driver stands for.
enum class Key : uint64_t { kAddress = 1, kHandle, kMapping, kModule, kContext };

inline uint64_t key_of(Key what, uint64_t value) {
  return value << 3 | static_cast<uint64_t>(what);
}
inline bool is(Key what, uint64_t key) {
  return (key & 7) == static_cast<uint64_t>(what);
}

// Where the recorder did not learn the block's size. Readers derive it more exactly.
inline uint64_t size_of(const FrameworkEvent& row) {
  constexpr uint64_t kLeastBlockBytes = 512;  // PyTorch's kMinBlockSize
  if (row.block_bytes != 0) return row.block_bytes;
  return (row.size_bytes + kLeastBlockBytes - 1) / kLeastBlockBytes * kLeastBlockBytes;
}

inline bool valid_device(int64_t device) {
  return device >= 0 && device < static_cast<int64_t>(kStateDevices);
}

}  // namespace tidemark::injector
