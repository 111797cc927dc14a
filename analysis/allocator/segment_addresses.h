// Where the driver puts the memory that the allocator asks for.
//
// Only the order of addresses matters to the allocator, and only among free blocks of one size.
#pragma once

#include <cstdint>
#include <map>

namespace tidemark {

class SegmentAddresses {
 public:
  virtual ~SegmentAddresses() = default;
  virtual uint64_t allocate(uint64_t bytes) = 0;
  virtual void free(uint64_t address, uint64_t bytes) = 0;
  // Address space for an expandable segment.
  virtual uint64_t reserve(uint64_t bytes) = 0;
};

// What the driver was seen to do (CUDA 13.0, Linux): the lowest gap that fits is taken; when none
// does, new address space of at least 32 MiB is opened below everything else.
class DriverAddresses : public SegmentAddresses {
 public:
  uint64_t allocate(uint64_t bytes) override;
  void free(uint64_t address, uint64_t bytes) override;
  uint64_t reserve(uint64_t bytes) override;

 private:
  static constexpr uint64_t kChunkBytes = uint64_t{32} << 20;

  std::map<uint64_t, uint64_t> gaps_;  // address -> bytes
  uint64_t lowest_ = uint64_t{1} << 46;
  uint64_t next_range_ = uint64_t{1} << 32;
};

}  // namespace tidemark
