#include "analysis/history/curve.h"

#include <algorithm>

namespace tidemark {

std::vector<CurvePoint> thinned_curve(const AllocationHistory& model, size_t points) {
  std::vector<CurvePoint> curve;
  if (points == 0 || model.event_count() == 0) return curve;
  const int64_t start = model.time_ns.front();
  const int64_t width =
      std::max<int64_t>(1, (model.time_ns.back() - start) / static_cast<int64_t>(points) + 1);
  MemoryTotals now;
  int64_t bucket = -1;
  for (uint32_t e = 0; e < model.event_count(); ++e) {
    model.passed(e);
    const uint32_t s = model.subject[e];
    switch (model.change[e]) {
      case Change::kBirth:
        now.allocated += model.allocations[s].block_bytes;
        break;
      case Change::kRelease:
        now.allocated -= model.allocations[s].block_bytes;
        break;
      case Change::kGrow:
        now.reserved += model.segment_changes[s].size_bytes;
        break;
      case Change::kShrink:
        now.reserved -= model.segment_changes[s].size_bytes;
        break;
      case Change::kDeath:
      case Change::kPending:
        break;
    }
    if (const int64_t b = (model.time_ns[e] - start) / width; b != bucket) {
      bucket = b;
      curve.push_back({model.time_ns[e]});
    }
    CurvePoint& p = curve.back();
    p.end_ns = model.time_ns[e];
    p.allocated_low = std::min(p.allocated_low, now.allocated);
    p.allocated_high = std::max(p.allocated_high, now.allocated);
    p.reserved_low = std::min(p.reserved_low, now.reserved);
    p.reserved_high = std::max(p.reserved_high, now.reserved);
  }
  return curve;
}

}  // namespace tidemark
