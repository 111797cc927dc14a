// Stream-ordered memory: a pool takes chunks from the card and allocates pieces of them.
//
// Reserved is what the pool holds of the card, used is what it has allocated. Chunks that are
// entirely free are returned when a stream or context is synchronised and reserved is above the
// release threshold, when the pool is trimmed, and when the card is full. A freed piece can be
// allocated again at once: test programs order their streams themselves.
#pragma once

#include <cstdint>
#include <vector>

#include "abi/cuda.h"
#include "simgpu/address_space.h"

namespace tidemark::simgpu {

struct Device;
class Driver;

inline constexpr uint64_t kPoolChunkBytes = 32ULL << 20;

struct PoolChunk {
  uint64_t base;
  uint64_t bytes;
  uint64_t used_bytes;
  AddressSpace free;
};

struct Pool {
  int device;
  bool host = false;      // in host memory
  bool imported = false;  // belongs to another process
  bool is_default = false;
  cuda::CUmemPoolProps props;
  uint64_t release_threshold = 0;
  uint64_t reserved_bytes = 0;
  uint64_t reserved_high_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t used_high_bytes = 0;
  int reuse[3] = {1, 1, 1};
  std::vector<PoolChunk> chunks;

  // 0: out of memory.
  uint64_t take(Driver& driver, uint64_t bytes);
  void give(uint64_t address, uint64_t bytes);
  // Returns entirely free chunks while at least `keep_bytes` stay reserved.
  void trim(Driver& driver, uint64_t keep_bytes);
};

// At a synchronisation: trims every pool of the device to its release threshold.
void trim_to_thresholds(Driver& driver, int device);
// When the card is full: frees everything that is not in use in all pools of the device.
void trim_all(Driver& driver, int device);

}  // namespace tidemark::simgpu
