#include "viewer/panels/timeline/time_axis.h"

#include <algorithm>
#include <cmath>

#include "viewer/widgets/drawing.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr float kClickPx = 4;  // a shorter drag is a click

}  // namespace

std::vector<Tick> axis_ticks(const VisibleRange& view, float width) {
  return time_ticks(view.begin, view.end, std::max(2, static_cast<int>(width / px(110))));
}

void draw_time_axis(const Model& model, const Cursor& cursor, const std::vector<Tick>& ticks,
                    const PlotArea& area) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const double now = cursor.time(model);
  const bool cursor_shown = now >= area.view.begin && now <= area.view.end;
  const std::string flag = instant_text(now, area.view.span());
  const float half = width_of(flag) / 2 + px(8);
  const float flag_x =
      std::clamp(area.x(now), area.min.x + half, std::max(area.min.x + half, area.max.x - half));
  float free_from = area.min.x - px(40);
  const float y = area.min.y + px(3);
  for (const Tick& t : ticks) {
    const float x = area.x(t.at);
    draw.AddLine({x, area.max.y - px(4)}, {x, area.max.y}, paint(theme().line), px(1));
    const float width = width_of(t.label);
    const float left =
        std::clamp(x - width / 2, area.min.x, std::max(area.min.x, area.max.x - width));
    if (left < free_from) continue;
    if (cursor_shown && left < flag_x + half && left + width > flag_x - half) continue;
    draw.AddText({std::round(left), y}, paint(theme().dim), t.label.c_str());
    free_from = left + width + px(14);
  }
  if (cursor_shown) {
    draw_flag(draw, {area.x(now), area.max.y}, area.min.x, area.max.x, theme().cursor, flag);
  }
}

void draw_time_grid(const std::vector<Tick>& ticks, const PlotArea& area) {
  for (const Tick& t : ticks) {
    const float x = std::round(area.x(t.at));
    ImGui::GetWindowDrawList()->AddLine({x, area.min.y}, {x, area.max.y}, paint(theme().line, 90));
  }
}

void draw_cursor_lines(const Model& model, const Selection& selection, const PlotArea& area) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  draw.PushClipRect(area.min, area.max, true);
  const float x = std::round(area.x(selection.cursor.time(model)));
  draw.AddLine({x, area.min.y}, {x, area.max.y}, paint(theme().cursor, 210), px(1.2F));
  if (selection.comparison.reference()) {
    const float at = std::round(area.x(selection.comparison.time(model)));
    draw_dashes(draw, {at, area.min.y}, {at, area.max.y}, paint(theme().compare), px(4), px(1.5F));
  }
  draw.PopClipRect();
}

std::optional<ImVec2> TimeGestures::handle(TimeView& view, const PlotArea& area) {
  const ImGuiIO& io = ImGui::GetIO();
  if (ImGui::IsItemHovered()) {
    const double at = area.time(io.MousePos.x);
    if (io.MouseWheel != 0 && !io.KeyCtrl) {
      view.zoom(at, std::pow(0.8, static_cast<double>(io.MouseWheel)));
    }
    if (io.MouseWheelH != 0) view.pan(-0.1 * static_cast<double>(io.MouseWheelH));
  }
  if (ImGui::IsItemActivated()) drag_view_ = view.range();
  if (ImGui::IsItemActive() && ImGui::IsMouseDragging(ImGuiMouseButton_Left, px(kClickPx))) {
    const double per_px = drag_view_.span() / static_cast<double>(area.max.x - area.min.x);
    const double by = -per_px * static_cast<double>(ImGui::GetMouseDragDelta(0, 0).x);
    view.show(drag_view_.begin + by, drag_view_.end + by);
  }
  const bool still = io.MouseDragMaxDistanceSqr[0] < px(kClickPx) * px(kClickPx);
  if (ImGui::IsItemDeactivated() && still) return io.MousePos;
  return std::nullopt;
}

}  // namespace tidemark::view
