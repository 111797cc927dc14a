#include "viewer/panels/timeline/minimap.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/wording.h"
#include "viewer/panels/timeline/time_axis.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

void draw_ooms(const Model& model, const PlotArea& area) {
  // A job in which every rank fails must not be all red.
  const int alpha = model.ooms.size() > 50 ? 80 : 255;
  float last = -1e9F;
  for (const OomPoint& oom : model.ooms) {
    const float x = area.x(since_start(model, oom.time_ns));
    if (x < last + 1) continue;
    last = x;
    ImGui::GetWindowDrawList()->AddLine({x, area.min.y}, {x, area.max.y}, paint(theme().bad, alpha),
                                        px(1));
  }
}

// Dims everything outside the visible range.
void draw_window(const VisibleRange& view, const PlotArea& area) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float left = std::max(area.x(view.begin), area.min.x);
  const float right = std::min(std::max(area.x(view.end), left + px(3)), area.max.x);
  draw.AddRectFilled(area.min, {left, area.max.y}, paint(theme().panel, 165));
  draw.AddRectFilled({right, area.min.y}, area.max, paint(theme().panel, 165));
  draw.AddRect({left, area.min.y}, {right, area.max.y}, paint(theme().accent), px(3), 0, px(1.5F));
}

// The curve of a run of which the trace has the last stretch, which is framed.
void draw_run(const WholeRun& run, ImVec2 size) {
  const ImVec2 min = ImGui::GetCursorScreenPos();
  const ImVec2 max = min + size;
  ImGui::InvisibleButton("##run", size);
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  draw.AddRectFilled(min, max, paint(theme().raised, 140), px(3));
  uint64_t most = 1;
  for (const RunPart& part : run.parts) {
    most = std::max({most, part.reserved_bytes, part.highest_bytes});
  }
  const auto length = static_cast<double>(std::max<int64_t>(run.end_ns() - run.begin_ns(), 1));
  const auto x = [&](int64_t time_ns) {
    const double share = static_cast<double>(time_ns - run.begin_ns()) / length;
    return min.x + size.x * static_cast<float>(std::clamp(share, 0.0, 1.0));
  };
  const auto y = [&](uint64_t bytes) {
    const double share = static_cast<double>(bytes) / (1.1 * static_cast<double>(most));
    return max.y - size.y * static_cast<float>(share);
  };
  for (const RunPart& part : run.parts) {
    const float left = x(part.begin_ns);
    const float right = std::max(x(part.end_ns), left + 1);
    draw.AddRectFilled({left, y(part.reserved_bytes)}, {right, max.y},
                       paint(curve_colour(Curve::kReserved), 80));
    const float top = y(part.highest_bytes);
    draw.AddRectFilled({left, top}, {right, std::max(y(part.lowest_bytes), top + px(1.5F))},
                       paint(curve_colour(Curve::kAllocated), 190));
  }
  const float kept = std::min(x(run.kept_from_ns), max.x - px(2));
  draw.AddRect({kept, min.y}, max, paint(theme().accent), px(3), 0, px(1.5F));
  explain(fmt::format(
              "The whole run of {}: lowest to highest, and reserved. Its peak: {} allocated, {} "
              "reserved. Events were kept of the framed part.",
              duration_text(run.end_ns() - run.begin_ns()), size_text(run.allocated_peak.bytes),
              size_text(run.reserved_peak.bytes))
              .c_str());
}

}  // namespace

void draw_whole_run(const Model& model, const Selection& selection, ImVec2 size) {
  if (selection.cursor.lane() >= model.lanes.size()) return;
  const DeviceReport* const report = model.report_of(model.lanes[selection.cursor.lane()]);
  if (report == nullptr || report->run.empty()) return;
  const ImVec2 before = ImGui::GetCursorPos();
  draw_run(report->run, size);
  ImGui::SetCursorPos(before);
}

void Minimap::draw_curves(const Model& model, const Selection& selection, bool overlay,
                          PlotArea& area) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const Lane& lane = model.lanes[selection.cursor.lane()];
  const auto columns = std::max(2U, static_cast<uint32_t>(area.max.x - area.min.x));
  uint64_t most = std::max<uint64_t>(lane.memory->reserved_peak.bytes, 1);
  const std::optional<Overlay> over =
      overlay ? selection.overlay_of(model, selection.cursor.lane()) : std::nullopt;
  if (over) most = std::max(most, over->of().memory->allocated_peak.bytes);
  area.top_bytes = 1.1 * static_cast<double>(most);
  own_.update(model, lane, area.view, columns, 0, area.axis);
  const float stop = area.x(since_start(model, model.end_of(lane)));
  for (const Curve c : {Curve::kReserved, Curve::kAllocated}) {
    const auto& values = own_.columns().curves[static_cast<size_t>(c)];
    for (size_t i = own_.columns().first_known; i < values.size(); ++i) {
      const float x = area.min.x + static_cast<float>(i);
      if (x > stop) break;
      draw.AddRectFilled({x, area.y(static_cast<double>(values[i].max))}, {x + 1, area.max.y},
                         paint(curve_colour(c), c == Curve::kAllocated ? 190 : 80));
    }
  }
  if (!over) return;
  laid_over_.update(*over->model, over->of(), area.view, columns, over->offset, area.axis);
  const float end = area.x(over->model->span_ns() + over->offset);
  const auto& values = laid_over_.columns().curves[static_cast<size_t>(Curve::kAllocated)];
  for (size_t i = laid_over_.columns().first_known; i < values.size(); ++i) {
    const float x = area.min.x + static_cast<float>(i);
    if (x > end) break;
    const float top = area.y(static_cast<double>(values[i].max));
    const float low = area.y(static_cast<double>(values[i].min));
    draw.AddRectFilled({x, top}, {x + 1, std::max(low, top + px(1.5F))}, paint(theme().compare));
  }
}

void Minimap::drag(TimeView& view, const PlotArea& area) {
  const double at = area.position(area.time(ImGui::GetMousePos().x));
  // Moves a range by so many positions of the axis.
  const auto move = [&](const VisibleRange& range, double by) {
    const double width = area.position(range.end) - area.position(range.begin);
    if (width > 0) pan_view(view, area.axis, range, by / width);
  };
  if (ImGui::IsItemActivated()) {
    const double begin = area.position(view.range().begin);
    const double end = area.position(view.range().end);
    if (at < begin || at > end) move(view.range(), at - (begin + end) / 2);
    dragging_ = true;
    drag_from_ = at;
    drag_view_ = view.range();
  } else if (dragging_ && ImGui::IsItemActive()) {
    move(drag_view_, at - drag_from_);
  } else {
    dragging_ = false;
  }
}

void Minimap::draw(const Model& model, Selection& selection, bool overlay, const EventAxis* axis,
                   ImVec2 size) {
  if (selection.cursor.lane() >= model.lanes.size()) return;
  PlotArea area{ImGui::GetCursorScreenPos(), {}, selection.view.whole(), 1, axis};
  area.max = area.min + size;
  ImGui::InvisibleButton("##minimap", size);
  ImGui::GetWindowDrawList()->AddRectFilled(area.min, area.max, paint(theme().raised, 140), px(3));
  draw_curves(model, selection, overlay, area);
  draw_ooms(model, area);
  draw_window(selection.view.range(), area);
  explain("All that was recorded. Drag to move the visible range.");
  drag(selection.view, area);
}

}  // namespace tidemark::view
