// Least and greatest totals over any range of events, exact, for the curves of one device.
//
// Leaves cover kLeaf events each and hold the totals before their first event, so that the few
// events at the ends of a range are replayed from there; everything between is answered by levels
// that join kFan nodes of the level below. Costs 2.8 bytes per event and is immutable once built:
// any thread may ask. The model must outlive it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "analysis/framework_model.h"

namespace tidemark {

enum class Curve : uint8_t { kAllocated, kRequested, kReserved };
inline constexpr size_t kCurves = 3;

// One value per curve.
using CurveValues = std::array<uint64_t, kCurves>;

struct Extremes {
  CurveValues min{};
  CurveValues max{};

  static Extremes nothing();
  void include(const CurveValues& values);
  void include(const Extremes& other);
};

class MinMaxPyramid {
 public:
  // Replaying an event costs a cache miss, so leaves are small: a frame replays one per pixel
  // column.
  static constexpr uint32_t kLeaf = 32;
  static constexpr uint32_t kFan = 4;

  explicit MinMaxPyramid(const FrameworkModel& model);

  // The totals after one event.
  CurveValues values_after(uint32_t event) const;
  // Over the totals after each of the events [first, last); first < last <= event_count().
  Extremes extremes(uint32_t first, uint32_t last) const;

  // A border between two ranges of events, inside a leaf: what lies on either side of it there.
  struct Edge {
    uint32_t event = 0;
    Extremes left = Extremes::nothing();   // from the leaf's first event to before `event`
    Extremes right = Extremes::nothing();  // from `event` to the leaf's last
    CurveValues before{};                  // totals before `event`
  };
  // 0 to event_count().
  Edge edge(uint32_t event) const;
  // The same as extremes(first.event, last.event), for neighbouring ranges that share their edges.
  Extremes between(const Edge& first, const Edge& last) const;

  size_t memory_bytes() const;

 private:
  Extremes whole_leaves(size_t first, size_t last) const;
  void replay(uint32_t first, uint32_t last, Extremes& out) const;

  const FrameworkModel* model_;
  std::vector<CurveValues> before_;            // per leaf: totals before its first event
  std::vector<std::vector<Extremes>> levels_;  // [0]: per leaf
};

}  // namespace tidemark
