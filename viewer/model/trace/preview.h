// A first curve while the trace is still being read: the bytes requested and freed according to the
// events, without replaying the allocator. Coarse, and replaced by the exact curves.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "proto/read/trace_reader.h"

namespace tidemark::view {

struct PreviewCurve {
  std::string name;
  std::vector<double> time_ns;  // since Preview::start_ns
  std::vector<double> low;      // bytes
  std::vector<double> high;
};

struct Preview {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::vector<PreviewCurve> curves;
};

// The preview is drawn in every frame while the trace is read. All curves together have at most
// about this many points; each point has the extremes of as many events as necessary.
inline constexpr size_t kMostPreviewPoints = 8192;

// Calls `publish` now and then with what is known so far, until done or `stop` is set. A point
// covers `events_per_point` events, and more when there would be too many points.
void make_preview(std::span<const TraceReader> readers, const std::atomic<bool>& stop,
                  const std::function<void(const Preview&)>& publish,
                  uint64_t events_per_point = 1024);

}  // namespace tidemark::view
