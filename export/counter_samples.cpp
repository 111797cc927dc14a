#include "export/counter_samples.h"

#include <algorithm>

namespace tidemark {

uint32_t first_event_from(const AllocationHistory& model, int64_t time_ns) {
  const auto it = std::lower_bound(model.time_ns.begin(), model.time_ns.end(), time_ns);
  return static_cast<uint32_t>(it - model.time_ns.begin());
}

uint32_t first_event_after(const AllocationHistory& model, int64_t time_ns) {
  const auto it = std::upper_bound(model.time_ns.begin(), model.time_ns.end(), time_ns);
  return static_cast<uint32_t>(it - model.time_ns.begin());
}

void SampleThinner::sort_batch() {
  std::sort(batch_.begin(), batch_.end(),
            [](const Entry& a, const Entry& b) { return a.order < b.order; });
}

}  // namespace tidemark
