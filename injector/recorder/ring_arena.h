// The ring's mapping and the free list of its chunks.
//
// Any thread takes chunks; only the writer thread gives them back. The mapping outlives the
// recording until no thread can stand in the middle of a record (session.h). No file descriptor is
// needed once the mapping stands, so a host that closes every descriptor does not disturb it.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/ring_layout.h"

namespace tidemark::injector {

inline constexpr uint32_t kNoChunk = UINT32_MAX;

// Whether less would perhaps fit.
bool too_large_for_disk(int error_number) noexcept;

class RingArena {
 public:
  // Makes the file, which must not exist, with all its blocks: a full disk is an error here and not
  // a SIGBUS later. False with errno, and no file, when that does not work.
  bool create(const char* path, uint64_t bytes) noexcept;

  // From now on recovery takes the ring seriously.
  void set_live() noexcept;

  // kNoChunk when every chunk is in use.
  uint32_t take() noexcept;
  void give_back(uint32_t chunk) noexcept;

  // Gives the memory back to the system after the recording; addresses stay valid.
  void discard() noexcept;
  // Lets go of the lock that says "alive".
  void unlock() noexcept;
  // No address is valid any more.
  void unmap() noexcept;

  // Makes pages ready in front of those in use, so that recording threads meet no page faults.
  void populate_ahead() noexcept;

  bool exists() const noexcept { return lock_fd_ >= 0; }
  ring::RingHeader& header() const noexcept { return *header_; }
  ring::ChunkControl& control(uint32_t chunk) const noexcept { return controls_[chunk]; }
  uint64_t* released(uint32_t slot) const noexcept { return released_[slot]; }
  uint8_t* chunk(uint32_t chunk) const noexcept { return chunks_ + uint64_t{chunk} * chunk_bytes_; }
  uint32_t chunk_bytes() const noexcept { return chunk_bytes_; }
  uint32_t chunk_count() const noexcept { return chunk_count_; }
  uint32_t free_chunks() const noexcept { return free_.load(std::memory_order_relaxed); }
  // Chunks below this index were used at some time.
  uint32_t high_water() const noexcept { return high_water_.load(std::memory_order_acquire); }

  // The number the next chunk to be taken gets.
  uint64_t next_sequence() const noexcept { return sequence_.load(std::memory_order_acquire); }
  uint64_t draw_sequence() noexcept { return sequence_.fetch_add(1, std::memory_order_acq_rel); }

 private:
  bool prepare(int fd) noexcept;
  bool keep(int fd) noexcept;
  bool reserve_file(int fd, uint64_t bytes) noexcept;
  bool map(int fd, uint64_t bytes) noexcept;
  bool link_free_list() noexcept;
  void raise_high_water(uint32_t chunk) noexcept;

  ring::RingHeader* header_ = nullptr;
  ring::ChunkControl* controls_ = nullptr;
  uint64_t* released_[2] = {};
  uint8_t* chunks_ = nullptr;
  uint64_t total_bytes_ = 0;
  uint32_t chunk_bytes_ = 0;
  uint32_t chunk_count_ = 0;
  uint32_t populated_ = 0;

  // Holds the lock that says "alive", as long as the host does not close it. Never written to.
  int lock_fd_ = -1;
  uint64_t lock_device_ = 0;
  uint64_t lock_inode_ = 0;

  // Top of the free list: 63 … 32 a tag that changes with every operation, so that a chunk that was
  // taken and came back meanwhile is not mistaken for one that never left | 31 … 0 chunk.
  alignas(64) std::atomic<uint64_t> head_{kNoChunk};
  std::atomic<uint32_t>* next_ = nullptr;
  alignas(64) std::atomic<uint64_t> sequence_{0};
  std::atomic<uint32_t> free_{0};
  std::atomic<uint32_t> high_water_{0};
};

}  // namespace tidemark::injector
