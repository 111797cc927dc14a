// Everything that decides what PyTorch's caching allocator does with a sequence of requests.
//
// AllocatorRules (sizes and splits) is enough to read a recording; this adds what a replay of the
// allocator needs: limits, garbage collection, segment sizes and the behaviour of the version.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/history/allocator_rules.h"
#include "proto/base/result.h"

namespace tidemark {

inline constexpr uint64_t kSmallSegmentBytes = uint64_t{2} << 20;
inline constexpr uint64_t kLargeSegmentBytes = uint64_t{20} << 20;  // default
inline constexpr uint64_t kMinLargeBytes = uint64_t{10} << 20;      // gets a separate segment
inline constexpr uint64_t kSegmentStepBytes = uint64_t{2} << 20;

// The order of free blocks of equal size; the first one is used.
enum class TieBreak : uint8_t {
  kAddress,       // up to 2.11
  kRegistration,  // 2.12: age of the block's object
  kSegment,       // 2.13: age of the segment, then address
};

struct TorchVersion {
  uint32_t major = 2;
  uint32_t minor = 11;

  // "2.11", "2.11.0+cu130", "torch 2.11.0".
  static Result<TorchVersion> parse(std::string_view text);
  bool at_least(uint32_t wanted_minor) const { return major > 2 || minor >= wanted_minor; }
  TieBreak tie_break() const;
  std::string text() const;
};

struct AllocatorSettings {
  AllocatorRules rules;
  TorchVersion version;
  double gc_threshold = 0;     // of the limit; 0: off; acts only with a memory fraction
  double memory_fraction = 0;  // of the card; 0: not set
  uint64_t large_segment_bytes = kLargeSegmentBytes;
  uint64_t max_non_split_bytes =
      0;  // slack when an oversize block is used again; 0: a large segment
  bool fail_before_driver = false;   // throw_on_cudamalloc_oom: no retries
  std::vector<std::string> ignored;  // keys that do not change device memory

  // Parses the text of PYTORCH_CUDA_ALLOC_CONF as strictly as torch does: the error names the first
  // key or value that torch would reject.
  static Result<AllocatorSettings> parse(std::string_view conf, TorchVersion version = {});

  // The bytes requested from the driver when a request of this (rounded) size finds no free block.
  uint64_t segment_bytes(uint64_t size) const;
  uint64_t non_split_slack() const {
    return max_non_split_bytes != 0 ? max_non_split_bytes : large_segment_bytes;
  }
};

}  // namespace tidemark
