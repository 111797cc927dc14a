// A first curve while the trace is still being read: what the events themselves say was asked for
// and given back, without replaying the allocator. Coarse, and replaced by the exact curves.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "proto/trace_reader.h"

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

// Calls `publish` now and then with what is known so far, until done or `stop` is set.
void make_preview(std::span<const TraceReader> readers, const std::atomic<bool>& stop,
                  const std::function<void(const Preview&)>& publish);

}  // namespace tidemark::view
