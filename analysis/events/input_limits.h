// Limits for what a forged file may contain. Real traces are far below them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tidemark {

// Times are clamped so that their differences cannot overflow: 2^61 ns are 73 years after 1970.
inline constexpr int64_t kLatestNs = int64_t{1} << 61;
inline int64_t sane(int64_t time_ns) {
  return std::clamp(time_ns, -kLatestNs, kLatestNs);
}

// Of one process: a few bytes could name millions. The driver itself supports fewer.
inline constexpr size_t kMostDevices = 1024;

}  // namespace tidemark
