// The addresses of the memory that the allocator requests from the driver.
//
// Only the order of addresses matters to the allocator, and only among free blocks of one size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

namespace tidemark {

class SegmentAddresses {
 public:
  virtual ~SegmentAddresses() = default;
  virtual uint64_t allocate(uint64_t bytes) = 0;
  virtual void free(uint64_t address, uint64_t bytes) = 0;
  // Address space for an expandable segment.
  virtual uint64_t reserve(uint64_t bytes) = 0;
};

struct PlacedSegment {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

// The observed behaviour of the driver (driver 580, CUDA 13.0, Linux): it takes address space from
// the kernel in chunks of multiples of 32 MiB, places memory into the lowest gap that fits in any
// chunk, and returns a chunk when it is empty. The kernel uses the highest hole that fits.
//
// The other mappings of the process are not known, so the addresses of a recording are used until
// the requested sizes differ from the recorded ones.
class DriverAddresses : public SegmentAddresses {
 public:
  explicit DriverAddresses(std::span<const PlacedSegment> recorded = {});

  uint64_t allocate(uint64_t bytes) override;
  void free(uint64_t address, uint64_t bytes) override;
  uint64_t reserve(uint64_t bytes) override;

 private:
  struct Chunk {
    uint64_t bytes = 0;
    uint64_t used = 0;
    std::map<uint64_t, uint64_t> gaps;  // address -> bytes
  };
  using Chunks = std::map<uint64_t, Chunk>;  // by address

  bool follow(uint64_t bytes);
  void stop_following();
  bool free_for(const PlacedSegment& range) const;
  void occupy(PlacedSegment range);
  Chunks::iterator chunk_at(uint64_t address);
  uint64_t open_chunk(uint64_t bytes);
  void close_chunk(Chunks::iterator chunk);

  Chunks chunks_;
  std::map<uint64_t, uint64_t> holes_;  // the kernel's: address -> bytes
  std::span<const PlacedSegment> recorded_;
  size_t next_recorded_ = 0;
  bool following_ = true;
  uint64_t next_range_ = uint64_t{1} << 32;
  uint64_t beyond_ = uint64_t{1} << 57;  // when the kernel's holes are full
};

}  // namespace tidemark
