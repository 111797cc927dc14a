// The curves of one device, and their minimum and maximum over a range of events.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace tidemark {

enum class Curve : uint8_t { kAllocated, kRequested, kReserved };
inline constexpr size_t kCurves = 3;

// One value per curve.
using CurveValues = std::array<uint64_t, kCurves>;

struct Extremes {
  CurveValues min{};
  CurveValues max{};

  static Extremes nothing() {
    Extremes e;
    e.min.fill(std::numeric_limits<uint64_t>::max());
    return e;
  }
  void include(const CurveValues& values) {
    for (size_t c = 0; c < kCurves; ++c) {
      min[c] = std::min(min[c], values[c]);
      max[c] = std::max(max[c], values[c]);
    }
  }
  void include(const Extremes& other) {
    for (size_t c = 0; c < kCurves; ++c) {
      min[c] = std::min(min[c], other.min[c]);
      max[c] = std::max(max[c], other.max[c]);
    }
  }
};

}  // namespace tidemark
