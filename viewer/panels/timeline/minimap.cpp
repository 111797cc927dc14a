#include "viewer/panels/timeline/minimap.h"

#include <algorithm>

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

}  // namespace

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
  explain("The whole run. Drag to move the visible range.");
  drag(selection.view, area);
}

}  // namespace tidemark::view
