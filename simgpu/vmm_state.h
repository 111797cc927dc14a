// Virtual memory management: reserved addresses, physical memory, and mappings between them.
//
// Physical memory exists while it has a handle (`handles` counts create, import and retain, minus
// releases) or a mapping. A reservation is only a range of addresses.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "abi/cuda.h"
#include "simgpu/address_space.h"

namespace tidemark::simgpu {

inline constexpr uint64_t kVmmGranularity = 2ULL << 20;

struct Physical {
  uint64_t handle;
  uint64_t bytes;
  cuda::CUmemAllocationProp prop;
  int device;    // -1: host memory, or a multicast object
  bool charged;  // its bytes are charged to this process
  bool multicast = false;
  uint32_t handles = 1;
  uint32_t mappings = 0;
};

struct Mapping {
  uint64_t bytes;
  uint64_t offset;
  Physical* physical;
  cuda::CUmemAccess_flags access = cuda::CU_MEM_ACCESS_FLAGS_PROT_NONE;
};

struct VirtualMemory {
  AddressSpace addresses{1ULL << 46, 1ULL << 45};
  std::map<uint64_t, uint64_t> reservations;               // address -> bytes
  std::map<uint64_t, Mapping> mappings;                    // by address
  std::map<uint64_t, std::unique_ptr<Physical>> physical;  // by handle
  uint64_t last_handle = 0;
};

}  // namespace tidemark::simgpu
