#include "simgpu/pool_state.h"

#include <algorithm>

#include "simgpu/driver.h"

namespace tidemark::simgpu {

uint64_t Pool::take(Driver& driver, uint64_t bytes) {
  const uint64_t piece = round_up(bytes, kAllocationAlignment);
  uint64_t address = 0;
  auto from = std::find_if(chunks.begin(), chunks.end(), [&](PoolChunk& chunk) {
    address = chunk.free.take(piece, kAllocationAlignment);
    return address != 0;
  });
  if (from == chunks.end()) {
    const uint64_t chunk = round_up(piece, kPoolChunkBytes);
    if (props.maxSize != 0 && reserved_bytes + chunk > props.maxSize) return 0;
    Device& owner = *driver.device(device);
    if (!host && !driver.take(owner, chunk)) return 0;
    const uint64_t base = owner.addresses.take(chunk, kVmmGranularity);
    if (base == 0) {
      if (!host) owner.card.give(chunk);
      return 0;
    }
    reserved_bytes += chunk;
    reserved_high_bytes = std::max(reserved_high_bytes, reserved_bytes);
    chunks.push_back({base, chunk, 0, AddressSpace(base, chunk)});
    from = std::prev(chunks.end());
    address = from->free.take(piece, kAllocationAlignment);
  }
  from->used_bytes += piece;
  used_bytes += piece;
  used_high_bytes = std::max(used_high_bytes, used_bytes);
  return address;
}

void Pool::give(uint64_t address, uint64_t bytes) {
  const uint64_t piece = round_up(bytes, kAllocationAlignment);
  const auto chunk = std::find_if(chunks.begin(), chunks.end(), [&](const PoolChunk& c) {
    return address >= c.base && address - c.base < c.bytes;
  });
  if (chunk == chunks.end()) return;
  chunk->free.give(address, piece);
  chunk->used_bytes -= piece;
  used_bytes -= piece;
}

void Pool::trim(Driver& driver, uint64_t keep_bytes) {
  Device& owner = *driver.device(device);
  for (auto chunk = chunks.begin(); chunk != chunks.end();) {
    if (chunk->used_bytes != 0 || reserved_bytes - chunk->bytes < keep_bytes) {
      ++chunk;
      continue;
    }
    owner.addresses.give(chunk->base, chunk->bytes);
    if (!host) owner.card.give(chunk->bytes);
    reserved_bytes -= chunk->bytes;
    chunk = chunks.erase(chunk);
  }
}

void trim_to_thresholds(Driver& driver, int device) {
  driver.pools.each([&](Pool& pool) {
    if (pool.device == device) pool.trim(driver, pool.release_threshold);
  });
}

void trim_all(Driver& driver, int device) {
  driver.pools.each([&](Pool& pool) {
    if (pool.device == device) pool.trim(driver, 0);
  });
}

}  // namespace tidemark::simgpu
