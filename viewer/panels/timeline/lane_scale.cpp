#include "viewer/panels/timeline/lane_scale.h"

#include <algorithm>

#include "viewer/panels/timeline/steps.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

// The part of a plot's height for its name, the numbers below it and the flag of the peak.
float header_px(float plot_px) {
  const float lines = plot_px < px(kTwoLinesPx) ? 1 : plot_px < px(200) ? 2 : 3;
  return px(6) + lines * (ImGui::GetTextLineHeight() + px(2));
}

bool has_own_curves(const Lane& lane) {
  return lane.memory->event_count() != 0 || !lane.owners.empty();
}

double highest_of(const Lane& lane, const TimelineOptions& options,
                  const std::optional<Overlay>& overlay) {
  const AllocationHistory& m = *lane.memory;
  uint64_t highest = std::max(
      {m.allocated_peak.bytes, m.requested_peak.bytes, m.reserved_peak.bytes, uint64_t{1024}});
  if (options.owners && !lane.owners.empty()) {
    highest = std::max(highest, lane.owners.front().bytes.peak());
  }
  if (options.used && !has_own_curves(lane)) highest = std::max(highest, lane.used.peak());
  // The overlay must be visible, whatever that does to the scale.
  if (overlay) {
    const AllocationHistory& there = *overlay->of().memory;
    highest = std::max(highest, there.allocated_peak.bytes);
    if (options.shown[static_cast<size_t>(Curve::kReserved)]) {
      highest = std::max(highest, there.reserved_peak.bytes);
    }
  }
  return static_cast<double>(options.to_limit ? std::max(highest, lane.total_bytes) : highest);
}

}  // namespace

uint64_t own_limit(const Model& model, const Lane& lane) {
  const DeviceReport* report = model.report_of(lane);
  const bool known = report != nullptr && report->limit.source == LimitSource::kFraction;
  return known ? report->limit.bytes : 0;
}

uint32_t within_limit_from(const Lane& lane, uint64_t limit) {
  const uint32_t count = lane.memory->event_count();
  uint32_t from = 0;
  for (uint32_t until = count; from < until;) {
    const uint32_t middle = from + (until - from) / 2;
    const Extremes rest = lane.curves.extremes(middle, count);
    if (rest.max[static_cast<size_t>(Curve::kReserved)] > limit) {
      from = middle + 1;
    } else {
      until = middle;
    }
  }
  return from;
}

double lane_top(const Model& model, const Lane& lane, const TimelineOptions& options,
                const std::optional<Overlay>& overlay, float plot_px) {
  double highest = highest_of(lane, options, overlay);
  const float below = std::max(plot_px - header_px(plot_px), plot_px / 2);
  const double room = static_cast<double>(plot_px) / static_cast<double>(std::max(below, 1.0F));
  for (const uint64_t limit : {lane.total_bytes, own_limit(model, lane)}) {
    const auto bytes = static_cast<double>(limit);
    if (bytes > highest && bytes <= highest * room) highest = bytes;
  }
  return highest * room;
}

double shared_top(const Model& model, const Selection& selection, const TimelineOptions& options,
                  float lane_px) {
  const bool curves = std::any_of(model.lanes.begin(), model.lanes.end(), has_own_curves);
  double top = 0;
  for (uint32_t i = 0; i < model.lanes.size(); ++i) {
    const Lane& lane = model.lanes[i];
    if (curves && !has_own_curves(lane)) continue;
    const float plot_px = lane_px - steps_strip_px(model, lane, options, lane_px);
    const auto overlay = options.overlay ? selection.overlay_of(model, i) : std::nullopt;
    top = std::max(top, lane_top(model, lane, options, overlay, plot_px));
  }
  return top;
}

}  // namespace tidemark::view
