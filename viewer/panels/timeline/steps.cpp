#include "viewer/panels/timeline/steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/wording.h"
#include "viewer/model/flame/stretch.h"
#include "viewer/model/owner_names.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr float kLeastLanePx = 96;  // a lower lane has no space for text about its steps
constexpr float kTickPx = 5;

enum LabelRank { kPhaseLabel, kStepLabel };

double time_of(const Model& model, const Lane& lane, uint32_t event) {
  const AllocationHistory& m = *lane.memory;
  return since_start(model, m.time_ns[std::min(event, m.event_count() - 1)]);
}

// The strip, below the curves.
struct Strip {
  float top = 0;
  float bottom = 0;
  float text_y = 0;  // < 0: no text
};

void draw_phases(const Model& model, const Lane& lane, const PlotArea& area, const Strip& strip,
                 Labels& labels) {
  const DeviceReport* report = model.report_of(lane);
  if (report == nullptr) return;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  for (const Phase& p : report->phase_events) {
    const float left = std::max(area.x(time_of(model, lane, p.first)), area.min.x);
    const float right =
        std::min(std::max(area.x(time_of(model, lane, p.last)), left + px(2)), area.max.x);
    if (left > area.max.x || right < area.min.x) continue;
    const Rgb colour = p.kind == PhaseKind::kFirstStep ? theme().dim
                       : is_forward_only(p.kind)       ? theme().good
                                                       : theme().pending;
    draw.AddRectFilled({left, area.min.y}, {right, area.max.y}, paint(colour, 11));
    draw.AddRectFilled({left, strip.bottom - px(3)}, {right, strip.bottom}, paint(colour));
    if (strip.text_y < 0) continue;
    const std::string name = in_words(phase_name(p.kind));
    // The number of the step is at the left end, so the name is at the right one.
    const float room = right - left - px(8);
    if (room < width_of(name)) continue;
    labels.add(kPhaseLabel, {right - width_of(name) - px(4), strip.text_y}, paint(colour), name, 0);
  }
}

// Every how many steps a number is drawn: 1 where most of them have space for their own, else 10,
// 100 ...
uint64_t numbered(const Model& model, const Lane& lane, const PlotArea& area, size_t first) {
  const Steps& steps = model.steps_of(lane);
  const auto begin = steps.boundaries.begin() + static_cast<std::ptrdiff_t>(first);
  const auto after = std::partition_point(begin, steps.boundaries.end(), [&](uint32_t e) {
    return time_of(model, lane, e) <= area.view.end;
  });
  const auto in_view = static_cast<size_t>(after - steps.boundaries.begin());
  if (in_view < first + 2) return 1;
  const float left = area.x(time_of(model, lane, steps.boundaries[first]));
  const float right = area.x(time_of(model, lane, steps.boundaries[in_view - 1]));
  const float mean = (right - left) / static_cast<float>(in_view - 1 - first);
  const float wanted = width_of(fmt::format("{}", steps.number(in_view - 1))) + px(8);
  uint64_t each = 1;
  while (mean * static_cast<float>(each) < wanted && each < steps.boundaries.size()) each *= 10;
  return each;
}

// Iterations as stripes where they are wide enough to see, with numbers where there is space.
void draw_stripes(const Model& model, const Lane& lane, const PlotArea& area, const Strip& strip,
                  Labels& labels) {
  const Steps& steps = model.steps_of(lane);
  const std::vector<uint32_t>& starts = steps.boundaries;
  if (starts.size() < 2) return;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  auto first = static_cast<size_t>(
      std::partition_point(starts.begin(), starts.end(),
                           [&](uint32_t e) { return time_of(model, lane, e) < area.view.begin; }) -
      starts.begin());
  if (first > 0) --first;
  const uint64_t each = numbered(model, lane, area, first);
  float drawn_to = -1e9F;
  for (size_t i = first; i < starts.size(); ++i) {
    const float x = area.x(time_of(model, lane, starts[i]));
    if (x > area.max.x) break;
    const bool narrow = each > 1 && i + 1 < starts.size() && x >= area.min.x;
    if (narrow && strip.text_y >= 0 && steps.number(i) % each == 0) {
      labels.add(kStepLabel, {x + px(4), strip.text_y}, paint(theme().dim),
                 fmt::format("{}", steps.number(i)), 0);
    }
    if (x < drawn_to + px(3)) continue;  // the ticks would run together
    drawn_to = x;
    if (x >= area.min.x) {
      draw.AddLine({x, strip.top}, {x, strip.bottom}, paint(theme().dim, 220), px(1));
    }
    if (i + 1 >= starts.size()) break;
    const float end = area.x(time_of(model, lane, starts[i + 1]));
    if (end - x < px(24)) continue;
    if (i % 2 == 1) {
      draw.AddRectFilled({x, area.min.y}, {end, area.max.y},
                         paint(theme().dark ? Rgb{255, 255, 255} : Rgb{0, 0, 0}, 9));
    }
    if (strip.text_y < 0 || each > 1) continue;
    const float left = std::max(x, area.min.x) + px(4);
    const float room = std::min(end, area.max.x) - left - px(4);
    std::string name = steps.name(i);
    if (width_of(name) > room) name = fmt::format("{}", steps.number(i));
    if (width_of(name) > room) continue;
    labels.add(kStepLabel, {left, strip.text_y}, paint(theme().dim), name, 0);
  }
}

}  // namespace

float steps_strip_px(const Model& model, const Lane& lane, const TimelineOptions& options,
                     float lane_px) {
  if (!options.steps || model.steps_of(lane).boundaries.size() < 2) return 0;
  return lane_px < px(kLeastLanePx) ? 0 : ImGui::GetTextLineHeight() + px(5);
}

void draw_steps(const Model& model, const Lane& lane, const PlotArea& area, float strip_px) {
  Strip strip{area.max.y - px(kTickPx), area.max.y, -1};
  if (strip_px > 0) {
    strip = {area.max.y, area.max.y + strip_px, area.max.y + px(1)};
    ImGui::GetWindowDrawList()->AddRectFilled({area.min.x, strip.top}, {area.max.x, strip.bottom},
                                              paint(theme().raised, 110));
  }
  Labels labels;
  draw_phases(model, lane, area, strip, labels);
  draw_stripes(model, lane, area, strip, labels);
  labels.draw(*ImGui::GetWindowDrawList());
}

void measure_step(const Model& model, const Lane& lane, double time, Selection& selection) {
  const auto measure = [&](uint32_t first, uint32_t last, std::string name) {
    const double begin = time_of(model, lane, first);
    const double end = time_of(model, lane, last);
    if (time < begin || time >= end) return false;
    selection.highlights.drop_picked();
    selection.highlights.measure = range_of(*lane.memory, first, last);
    selection.highlights.measured = std::move(name);
    selection.requests.details = true;
    return true;
  };
  if (const DeviceReport* report = model.report_of(lane); report != nullptr) {
    for (const Phase& p : report->phase_events) {
      if (p.kind == PhaseKind::kFirstStep) continue;
      if (measure(p.first, p.last, in_words(phase_name(p.kind)))) return;
    }
  }
  const Steps& steps = model.steps_of(lane);
  const std::vector<uint32_t>& starts = steps.boundaries;
  for (size_t i = 0; i < starts.size(); ++i) {
    const uint32_t end = i + 1 < starts.size() ? starts[i + 1] : lane.memory->event_count();
    if (measure(starts[i], end, steps.name(i))) return;
  }
}

}  // namespace tidemark::view
