#include "viewer/model/timeline/event_axis.h"

#include <algorithm>
#include <cmath>

namespace tidemark::view {

namespace {

// The time before the first event, and after the last one, is as wide as this many events.
constexpr double kOutside = 1;

}  // namespace

double EventAxis::position(double time) const {
  const uint32_t count = memory_->event_count();
  const uint32_t next = memory_->first_event_not(
      [&](int64_t t) { return static_cast<double>(t - start_ns_) < time; });
  if (next == 0) {
    const double first = since_start(0);
    return first > 0 ? kOutside * std::max(time / first - 1, -1.0) : 0;
  }
  const double before = since_start(next - 1);
  const double at = next - 1 - memory_->first_state();
  // How long the recording went on after the last event does not matter.
  if (next == count) return at + (time > before ? kOutside : 0);
  const double after = since_start(next);
  return at + (time - before) / (after - before);
}

double EventAxis::time(double position) const {
  const uint32_t count = memory_->event_count();
  if (position < 0) return since_start(0) * std::max(1 + position / kOutside, 0.0);
  position += memory_->first_state();
  const double whole = std::floor(position);
  if (whole >= count - 1) return since_start(count - 1) + (position > count - 1 ? 1 : 0);
  const auto event = static_cast<uint32_t>(whole);
  const double before = since_start(event);
  return before + (position - whole) * (since_start(event + 1) - before);
}

std::vector<double> EventAxis::edges(double begin, double end, uint32_t columns) const {
  const double first = position(begin);
  const double last = position(end);
  std::vector<double> edges(size_t{columns} + 1);
  for (uint32_t i = 0; i <= columns; ++i) edges[i] = time(first + (last - first) * i / columns);
  edges.front() = std::min(begin, edges.front());
  edges.back() = std::max(end, edges.back());
  return edges;
}

}  // namespace tidemark::view
