#include "export/perfetto/slices.h"

#include <fmt/format.h>

#include <algorithm>

namespace tidemark {

SliceLanes::SliceLanes(PerfettoPackets& packets, PerfettoTracks& tracks, uint32_t sequence,
                       uint64_t parent, std::string name, int32_t order)
    : packets_(packets),
      tracks_(tracks),
      sequence_(sequence),
      parent_(parent),
      name_(std::move(name)),
      order_(order) {}

void SliceLanes::close_until(Lane& lane, int64_t time_ns) {
  while (!lane.ends.empty() && lane.ends.back() <= time_ns) {
    if (lane.ends.back() != kOpenEnd) {
      packets_.put_slice_end(sequence_, lane.ends.back(), lane.track);
    }
    lane.ends.pop_back();
  }
}

void SliceLanes::add_lane() {
  const std::string name =
      lanes_.empty() ? name_ : fmt::format("{} ({})", name_, lanes_.size() + 1);
  lanes_.push_back({tracks_.add(parent_, name, order_), {}});
}

uint64_t SliceLanes::place(int64_t begin_ns, int64_t end_ns) {
  for (Lane& lane : lanes_) {
    close_until(lane, begin_ns);
    if (lane.ends.empty() || lane.ends.back() >= end_ns) {
      lane.ends.push_back(end_ns);
      return lane.track;
    }
  }
  if (lanes_.size() < kMaxLanes) {
    add_lane();
    lanes_.back().ends.push_back(end_ns);
  } else {
    ++clipped_;
    lanes_.back().ends.push_back(std::min(end_ns, lanes_.back().ends.back()));
  }
  return lanes_.back().track;
}

void SliceLanes::finish() {
  for (Lane& lane : lanes_) close_until(lane, kOpenEnd);
}

}  // namespace tidemark
