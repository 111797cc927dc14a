// The rules by which PyTorch's caching allocator sizes and splits blocks (torch 2.0 to 2.13).
//
// A recorded allocation holds the requested size; the actual block size follows from these rules
// and the free block it was split from.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tidemark {

inline constexpr uint64_t kMinBlockBytes = 512;
inline constexpr uint64_t kSmallBytes = 1
                                        << 20;  // requests up to this size come from small segments

struct AllocatorRules {
  uint64_t max_split_bytes = UINT64_MAX;
  bool expandable_segments = false;
  // Per power of two of MiB, 1 to 32768: divisions for rounding up; 0 or 1: none.
  std::array<uint32_t, 16> roundup_divisions{};
  // torch 2.0 to 2.3: one division rounds up to a power of two; later it means none.
  bool one_division_rounds = false;

  // Applies the allocator's settings as a snapshot lists them: "max_split_size" = "-1",
  // "expandable_segments" = "True", "roundup_power2_divisions.64" = "8". Others are ignored.
  void apply_setting(std::string_view key, std::string_view value);

  // Applies the text of PYTORCH_CUDA_ALLOC_CONF.
  void apply_conf(std::string_view conf);

  // The size of the block that a request needs.
  uint64_t round(uint64_t requested) const;

  // Whether a free block of `available` bytes is split to allocate `size` (already rounded).
  bool splits(uint64_t size, uint64_t available) const;
};

}  // namespace tidemark
