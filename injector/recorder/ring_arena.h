// The mapping of the ring file and the free list of its chunks.
//
// Any thread takes chunks; only the writer thread returns them. The mapping outlives the recording
// until no thread can be in the middle of a record (session.h). No file descriptor is needed once
// the file is mapped, so a host that closes all descriptors does no harm. A file that is truncated
// ends the recording and not the host (mapping_guard.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/ring_layout.h"

namespace tidemark::injector {

inline constexpr uint32_t kNoChunk = UINT32_MAX;

// Whether a smaller file might fit.
bool too_large_for_disk(int error_number) noexcept;

class RingArena {
 public:
  // Creates the file, which must not exist, and allocates all its blocks: a full disk is an error
  // here and not a SIGBUS later. On failure returns false with errno and leaves no file.
  bool create(const char* path, uint64_t bytes) noexcept;

  // From now on recovery reads the ring.
  void set_live() noexcept;

  // kNoChunk when every chunk is in use.
  uint32_t take() noexcept;
  void give_back(uint32_t chunk) noexcept;

  // Frees the memory after the recording; the addresses stay valid.
  void discard() noexcept;
  // Releases the file lock that shows that the process is alive.
  void unlock() noexcept;
  // Unmaps everything: no address is valid any more.
  void unmap() noexcept;

  // The file was truncated or became unreadable. From then on the addresses are those of empty
  // memory, and nothing that is read there means anything.
  bool lost() const noexcept { return lost_.load(std::memory_order_acquire); }

  // Pre-faults the pages of the next chunks, so that recording threads get no page faults.
  void populate_ahead() noexcept;

  bool exists() const noexcept { return lock_fd_ >= 0; }
  ring::RingHeader& header() const noexcept { return *header_; }
  ring::ChunkControl& control(uint32_t chunk) const noexcept { return controls_[chunk]; }
  uint64_t* released(uint32_t slot) const noexcept { return released_[slot]; }
  uint8_t* chunk(uint32_t chunk) const noexcept { return chunks_ + uint64_t{chunk} * chunk_bytes_; }
  uint32_t chunk_bytes() const noexcept { return chunk_bytes_; }
  uint32_t chunk_count() const noexcept { return chunk_count_; }
  uint32_t free_chunks() const noexcept { return free_.load(std::memory_order_relaxed); }
  // Only chunks below this index have ever been used.
  uint32_t high_water() const noexcept { return high_water_.load(std::memory_order_acquire); }

  // The sequence number that the next chunk will get.
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

  std::atomic<bool> lost_{false};

  // Holds the lock that shows that the process is alive, unless the host closes it. Never written
  // to.
  int lock_fd_ = -1;
  uint64_t lock_device_ = 0;
  uint64_t lock_inode_ = 0;

  // Top of the free list: bits 63 … 32 are a tag that changes with every operation, so that a chunk
  // that was taken and returned in between is not mistaken for one that never left; bits 31 … 0 are
  // the chunk.
  alignas(64) std::atomic<uint64_t> head_{kNoChunk};
  std::atomic<uint32_t>* next_ = nullptr;
  alignas(64) std::atomic<uint64_t> sequence_{0};
  std::atomic<uint32_t> free_{0};
  std::atomic<uint32_t> high_water_{0};
};

}  // namespace tidemark::injector
