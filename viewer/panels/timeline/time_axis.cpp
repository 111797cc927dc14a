#include "viewer/panels/timeline/time_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "analysis/wording.h"
#include "viewer/widgets/drawing.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

std::vector<Tick> axis_ticks(const VisibleRange& view, float width) {
  return time_ticks(view.begin, view.end, std::max(2, static_cast<int>(width / px(110))));
}

std::vector<Tick> event_ticks(const EventAxis& axis, const VisibleRange& view, float width) {
  const double first = std::max(axis.position(view.begin), 0.0);
  const double last = axis.position(view.end);
  const double most = std::max(2.0, static_cast<double>(width / px(110)));
  double step = std::pow(10, std::floor(std::log10(std::max((last - first) / most, 1.0))));
  for (const double more : {2.0, 2.5, 2.0}) {
    if ((last - first) / step > most) step *= more;
  }
  std::vector<Tick> ticks;
  for (double at = std::ceil(first / step) * step; at <= last; at += step) {
    ticks.push_back({axis.time(at), grouped(static_cast<uint64_t>(at))});
  }
  return ticks;
}

void zoom_view(TimeView& view, const EventAxis* axis, double at, double factor) {
  if (axis == nullptr) {
    view.zoom(at, factor);
    return;
  }
  const double centre = axis->position(at);
  const double begin = axis->position(view.range().begin);
  const double end = axis->position(view.range().end);
  constexpr double kFewest = 4;  // events
  if (factor < 1 && (end - begin) * factor < kFewest) return;
  view.show(axis->time(centre - (centre - begin) * factor),
            axis->time(centre + (end - centre) * factor));
}

void pan_view(TimeView& view, const EventAxis* axis, const VisibleRange& from, double share) {
  if (axis == nullptr) {
    view.show(from.begin + from.span() * share, from.end + from.span() * share);
    return;
  }
  const double begin = axis->position(from.begin);
  const double end = axis->position(from.end);
  const double last = axis->memory()->event_count() - axis->memory()->first_state();
  const double by = std::clamp((end - begin) * share, -1 - begin, std::max(last - end, -1 - begin));
  view.show(axis->time(begin + by), axis->time(end + by));
}

void draw_tick_labels(const std::vector<Tick>& ticks, const PlotArea& area,
                      const std::optional<FreePart>& kept_free) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  float free_from = area.min.x - px(40);
  const float y = area.min.y + px(3);
  for (const Tick& t : ticks) {
    const float x = area.x(t.at);
    draw.AddLine({x, area.max.y - px(4)}, {x, area.max.y}, paint(theme().line), px(1));
    const float width = width_of(t.label);
    const float left =
        std::clamp(x - width / 2, area.min.x, std::max(area.min.x, area.max.x - width));
    if (left < free_from) continue;
    if (kept_free && left < kept_free->end && left + width > kept_free->begin) continue;
    draw.AddText({std::round(left), y}, paint(theme().dim), t.label.c_str());
    free_from = left + width + px(14);
  }
}

void draw_time_axis(const Model& model, const Cursor& cursor, const std::vector<Tick>& ticks,
                    const PlotArea& area) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const double now = cursor.time(model);
  const bool cursor_shown = now >= area.view.begin && now <= area.view.end;
  const std::string flag =
      area.axis == nullptr ? instant_text(now, area.view.span())
                           : "event " + grouped(area.axis->memory()->event_number(cursor.event()));
  const float half = width_of(flag) / 2 + px(8);
  const float flag_x =
      std::clamp(area.x(now), area.min.x + half, std::max(area.min.x + half, area.max.x - half));
  draw_tick_labels(
      ticks, area,
      cursor_shown ? std::optional(FreePart{flag_x - half, flag_x + half}) : std::nullopt);
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

void draw_measured(const VisibleRange& range, const PlotArea& area, const std::string& label,
                   float above) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const ImVec2 a(area.x(range.begin), area.min.y);
  const ImVec2 b(area.x(range.end), area.max.y);
  draw.PushClipRect(area.min, area.max, true);
  draw.AddRectFilled(a, b, paint(theme().accent, 36));
  draw.AddLine(a, {a.x, b.y}, paint(theme().accent), px(1));
  draw.AddLine({b.x, a.y}, b, paint(theme().accent), px(1));
  draw_flag(draw, {(a.x + b.x) / 2, area.max.y - above}, area.min.x, area.max.x, theme().accent,
            label);
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

void note_left_out(const TimeView& view) {
  if (!view.leaves_out_rest()) return;
  const bool begins_later = view.range().begin > 0;
  const char* const part = view.shows_end() ? "beginning"
                           : begins_later   ? "beginning and end"
                                            : "end";
  const std::string note = fmt::format("{} left out: press F for all", part);
  flow(width_of(note));
  text_dim(note);
  explain("Hardly anything was allocated there. The strip above the timeline has the whole run.");
}

}  // namespace tidemark::view
