#include "viewer/panels/timeline_lanes.h"

#include <fmt/format.h>
#include <implot.h>

#include <algorithm>
#include <cmath>

#include "export/names.h"
#include "viewer/widgets/drawing.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr size_t kMarkRows = 4;  // deeper annotations are left to the zoomed view's tooltip
constexpr float kMarkRowPx = 19;

double top_of(const Lane& lane, const TimelineOptions& options) {
  const FrameworkModel& m = *lane.memory;
  const uint64_t highest = std::max(
      {m.allocated_peak.bytes, m.requested_peak.bytes, m.reserved_peak.bytes, uint64_t{1024}});
  const uint64_t goal = options.to_limit ? std::max(highest, lane.total_bytes) : highest;
  // Room above for flags and the lane's name.
  return static_cast<double>(goal) * 1.28;
}

void plot_curves(const LaneCurves& curves, const TimelineOptions& options) {
  // From the back; requested mostly equals allocated, and shows only where it does not.
  for (const Curve c : {Curve::kReserved, Curve::kRequested, Curve::kAllocated}) {
    const auto index = static_cast<size_t>(c);
    const std::vector<double>& xs = curves.xs(c);
    if (!options.shown[index] || xs.empty()) continue;
    const auto n = static_cast<int>(xs.size());
    const ImVec4 colour = vec(curve_colour(c));
    if (c != Curve::kRequested) {
      ImPlot::SetNextFillStyle(colour, c == Curve::kAllocated ? 0.30F : 0.10F);
      ImPlot::PlotShaded(curve_name(c), xs.data(), curves.ys(c).data(), n, 0.0);
    }
    ImPlot::SetNextLineStyle(colour, px(c == Curve::kRequested ? 1.0F : 1.6F));
    ImPlot::PlotLine(curve_name(c), xs.data(), curves.ys(c).data(), n);
  }
}

void draw_limit(const PlotArea& area, double bytes, const std::string& label) {
  if (bytes <= 0 || bytes > area.top_bytes) return;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float y = std::round(area.y(bytes));
  draw_dashes(draw, {area.min.x, y}, {area.max.x, y}, paint(theme().limit, 220), px(6), px(1.5F));
  const float width = width_of(label);
  draw.AddText({area.max.x - width - px(6), y + px(2)}, paint(theme().limit), label.c_str());
}

void draw_peak(const Model& model, const Lane& lane, const PlotArea& area) {
  const Peak& peak = lane.memory->allocated_peak;
  if (lane.memory->event_count() == 0) return;
  const float x = area.x(static_cast<double>(peak.time_ns - model.trace.start_ns));
  if (x < area.min.x || x > area.max.x) return;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float y = area.y(static_cast<double>(peak.bytes));
  const float r = px(4);
  draw.AddTriangleFilled({x, y - px(1)}, {x - r, y - r * 2}, {x + r, y - r * 2},
                         paint(theme().allocated));
  if (area.max.y - area.min.y < px(90)) return;
  draw_flag(draw, {x, y - r * 2 - px(1)}, area.min.x, area.max.x, theme().allocated,
            "peak " + size_text(peak.bytes));
}

void draw_ooms(const Model& model, uint32_t lane, const PlotArea& area) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  float last_line = -1e9F;
  float last_flag = -1e9F;
  for (const OomPoint& oom : model.ooms) {
    if (oom.lane != lane) continue;
    const float x = area.x(static_cast<double>(oom.time_ns - model.trace.start_ns));
    if (x < area.min.x || x > area.max.x || x < last_line + 1) continue;
    last_line = x;
    draw.AddLine({x, area.min.y}, {x, area.max.y}, paint(theme().bad, 230), px(1.5F));
    const std::string label = "OOM, asked " + size_text(oom.requested_bytes);
    if (x - last_flag < width_of(label) + px(14)) continue;
    last_flag = x;
    draw_flag(draw, {x, area.max.y - px(3)}, area.min.x, area.max.x, theme().bad, label);
  }
}

void draw_name(const Model& model, const Selection& selection, uint32_t index, const PlotArea& area,
               const TimelineOptions& options) {
  const Lane& lane = model.lanes[index];
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const ImVec2 pad(px(8), px(4));
  ImVec2 at = area.min + pad;
  const float line = ImGui::GetTextLineHeight() + px(2);
  const bool chosen = index == selection.lane && model.lanes.size() > 1;
  std::string facts;
  uint32_t event = 0;
  if (selection.event_in_lane(model, index, event)) {
    const CurveValues now = lane.curves.values_after(event);
    for (const Curve c : {Curve::kAllocated, Curve::kRequested, Curve::kReserved}) {
      const auto i = static_cast<size_t>(c);
      if (options.shown[i]) {
        facts +=
            fmt::format("{}{} {}", facts.empty() ? "" : "   ", curve_name(c), size_text(now[i]));
      }
    }
  }
  const float room = area.max.x - area.min.x - 2 * pad.x;
  float bold_width = 0;
  {
    const WithFont bold(fonts().bold);
    bold_width = width_of(lane.name);
    draw.AddRectFilled(area.min + ImVec2(px(4), px(2)),
                       {std::min(at.x + bold_width + px(4), area.max.x), at.y + line},
                       paint(theme().panel, 170), px(3));
    draw.AddText(at, paint(chosen ? theme().accent : theme().text),
                 fitted(lane.name, room).c_str());
  }
  std::string card = lane.card;
  if (lane.total_bytes != 0) card += (card.empty() ? "" : ", ") + size_text(lane.total_bytes);
  const float after = bold_width + px(10);
  draw.AddText({at.x + after, at.y}, paint(theme().dim),
               fitted(card, std::max(0.0F, room - after)).c_str());
  if (area.max.y - area.min.y < px(104)) return;
  at.y += line;
  const std::string shown = fitted(facts, room);
  draw.AddRectFilled(at - ImVec2(px(4), 0), {at.x + width_of(shown) + px(4), at.y + line},
                     paint(theme().panel, 170), px(3));
  draw.AddText(at, paint(theme().dim), shown.c_str());
}

void draw_cursors(const Model& model, const Selection& selection, const PlotArea& area) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float x = std::round(area.x(selection.time(model)));
  draw.AddLine({x, area.min.y}, {x, area.max.y}, paint(theme().cursor, 210), px(1.2F));
  if (!selection.compare || selection.lane >= model.lanes.size()) return;
  const FrameworkModel& m = *model.lanes[selection.lane].memory;
  if (*selection.compare >= m.event_count()) return;
  const int64_t at = m.time_ns[*selection.compare] - model.trace.start_ns;
  const float cx = std::round(area.x(static_cast<double>(at)));
  draw_dashes(draw, {cx, area.min.y}, {cx, area.max.y}, paint(theme().compare), px(4), px(1.5F));
}

void draw_empty(const PlotArea& area, const char* why) {
  const float width = width_of(why);
  ImGui::GetWindowDrawList()->AddText(
      {(area.min.x + area.max.x - width) / 2, (area.min.y + area.max.y) / 2}, paint(theme().dim),
      why);
}

void mark_tooltip(const Model& model, uint32_t process, const MarkRange& range) {
  if (!ImGui::BeginTooltip()) return;
  text(model.trace.processes[process].names.string(range.name));
  const auto begin = static_cast<double>(range.begin_ns - model.trace.start_ns);
  const auto length = static_cast<double>(range.end_ns - range.begin_ns);
  text_dim("from " + instant_text(begin, std::max(length, 1e3)));
  if (range.open) {
    text_dim("its end was not recorded");
  } else if (length > 0) {
    text_dim("for " + span_text(length));
  }
  ImGui::EndTooltip();
}

}  // namespace

const char* curve_name(Curve curve) {
  switch (curve) {
    case Curve::kAllocated:
      return "allocated";
    case Curve::kRequested:
      return "requested";
    case Curve::kReserved:
      return "reserved";
  }
  return "";
}

Rgb curve_colour(Curve curve) {
  switch (curve) {
    case Curve::kAllocated:
      return theme().allocated;
    case Curve::kRequested:
      return theme().requested;
    case Curve::kReserved:
      return theme().reserved;
  }
  return theme().text;
}

void LaneCurves::update(const Model& model, const Lane& lane, const TimeRange& view,
                        uint32_t columns) {
  if (model_ == &model && count_ == columns && view_.begin == view.begin && view_.end == view.end) {
    return;
  }
  model_ = &model;
  view_ = view;
  count_ = columns;
  const TimeWindow window{model.trace.start_ns, view.begin, view.end};
  columns_ = columns_of(*lane.memory, lane.curves, window, columns);
  for (size_t c = 0; c < kCurves; ++c) {
    curve_points(*lane.memory, columns_, static_cast<Curve>(c), window, model.trace.end_ns, xs_[c],
                 ys_[c]);
  }
}

PlotArea draw_lane(const Model& model, Selection& selection, uint32_t index, LaneCurves& curves,
                   const TimelineOptions& options, const std::vector<Tick>& ticks, ImVec2 size) {
  const Lane& lane = model.lanes[index];
  PlotArea area{ImGui::GetCursorScreenPos(), {}, selection.view, top_of(lane, options)};
  area.max = area.min + size;
  curves.update(model, lane, selection.view, std::max(2U, static_cast<uint32_t>(size.x)));
  ImGui::PushID(static_cast<int>(index));
  if (ImPlot::BeginPlot("##curves", size,
                        ImPlotFlags_CanvasOnly | ImPlotFlags_NoInputs | ImPlotFlags_NoFrame)) {
    constexpr ImPlotAxisFlags kGridOnly =
        ImPlotAxisFlags_NoTickLabels | ImPlotAxisFlags_NoTickMarks | ImPlotAxisFlags_NoLabel;
    ImPlot::SetupAxes(nullptr, nullptr, kGridOnly, kGridOnly);
    ImPlot::SetupAxesLimits(selection.view.begin, selection.view.end, 0, area.top_bytes,
                            ImPlotCond_Always);
    std::vector<double> at;
    for (const Tick& t : ticks) at.push_back(t.at);
    if (!at.empty()) ImPlot::SetupAxisTicks(ImAxis_X1, at.data(), static_cast<int>(at.size()));
    at.clear();
    for (const Tick& t : byte_ticks(area.top_bytes, static_cast<int>(size.y / px(34)) + 1)) {
      at.push_back(t.at);
    }
    if (!at.empty()) ImPlot::SetupAxisTicks(ImAxis_Y1, at.data(), static_cast<int>(at.size()));
    plot_curves(curves, options);
    ImPlot::EndPlot();
  }
  ImGui::PopID();
  ImGui::PushClipRect(area.min, area.max, true);
  draw_limit(area, static_cast<double>(lane.total_bytes),
             "the card holds " + size_text(lane.total_bytes));
  if (lane.memory->event_count() == 0) draw_empty(area, "no allocator events were recorded");
  draw_cursors(model, selection, area);
  draw_peak(model, lane, area);
  draw_ooms(model, index, area);
  draw_name(model, selection, index, area, options);
  ImGui::PopClipRect();
  return area;
}

void draw_byte_labels(const PlotArea& area) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float height = area.max.y - area.min.y;
  for (const Tick& t : byte_ticks(area.top_bytes, static_cast<int>(height / px(34)) + 1)) {
    const float half = ImGui::GetTextLineHeight() / 2;
    const float y = std::clamp(area.y(t.at) - half, area.min.y, area.max.y - 2 * half);
    draw.AddText({std::round(area.min.x - width_of(t.label) - px(8)), std::round(y)},
                 paint(theme().dim), t.label.c_str());
  }
}

float mark_rows_height(const MarkLanes& marks) {
  const auto rows = static_cast<float>(std::min(marks.rows.size(), kMarkRows));
  return rows == 0 ? 0 : rows * px(kMarkRowPx) + px(6);
}

void draw_marks(const Model& model, const Selection& selection, uint32_t process,
                const PlotArea& area) {
  const MarkLanes& marks = model.marks[process];
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const std::string wanted = lower_case(selection.search);
  const int64_t start = model.trace.start_ns;
  const Dictionary& names = model.trace.processes[process].names;
  ImGui::PushClipRect(area.min, area.max, true);
  for (size_t r = 0; r < std::min(marks.rows.size(), kMarkRows); ++r) {
    const std::vector<MarkRange>& row = marks.rows[r];
    const float top = area.min.y + px(2) + static_cast<float>(r) * px(kMarkRowPx);
    const float bottom = top + px(kMarkRowPx - 2);
    const auto first_after = [&](auto from, double time) {
      return std::partition_point(from, row.end(), [&](const MarkRange& m) {
        return static_cast<double>(m.end_ns - start) < time;
      });
    };
    for (auto it = first_after(row.begin(), area.view.begin); it != row.end();) {
      const float left = area.x(static_cast<double>(it->begin_ns - start));
      if (left > area.max.x) break;
      const float right = std::max(area.x(static_cast<double>(it->end_ns - start)), left + px(2));
      const std::string_view name = names.string(it->name);
      const bool found = !wanted.empty() && lower_case(name).find(wanted) != std::string::npos;
      const Rgb colour = stack_colour(it->name + 1);
      const ImVec2 a(std::max(left, area.min.x - 2), top);
      const ImVec2 b(std::min(right, area.max.x + 2), bottom);
      draw.AddRectFilled(a, b, paint(colour, found ? 255 : wanted.empty() ? 150 : 60), px(2));
      if (found) draw.AddRect(a, b, paint(theme().cursor), px(2));
      draw_text_in(draw, a, b, paint(theme().text), name);
      if (ImGui::IsWindowHovered() && ImGui::IsMouseHoveringRect(a, b)) {
        mark_tooltip(model, process, *it);
      }
      // Ranges too narrow to see share the pixels of this one.
      it = first_after(std::next(it), area.time(right));
    }
  }
  ImGui::PopClipRect();
}

}  // namespace tidemark::view
