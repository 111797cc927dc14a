#include "viewer/panels/timeline_lanes.h"

#include <fmt/format.h>
#include <implot.h>

#include <algorithm>
#include <cmath>

#include "export/names.h"
#include "viewer/widgets/drawing.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/labels.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr size_t kMarkRows = 4;  // deeper annotations are left to the zoomed view's tooltip
constexpr float kMarkRowPx = 19;
constexpr size_t kMarksOfAll = 2;  // with more lanes than this only one process shows its own

// A curve this many times as high as the lane's own would press those flat: it is cut instead.
constexpr uint64_t kTooHigh = 4;

double top_of(const Lane& lane, const TimelineOptions& options) {
  const FrameworkModel& m = *lane.memory;
  const uint64_t own = std::max(
      {m.allocated_peak.bytes, m.requested_peak.bytes, m.reserved_peak.bytes, uint64_t{1024}});
  const bool alone = m.event_count() == 0;
  uint64_t highest = own;
  const auto take_in = [&](uint64_t peak) {
    if (alone || peak <= own * kTooHigh) highest = std::max(highest, peak);
  };
  if (options.used) take_in(lane.used.peak());
  if (options.owners && !lane.owners.empty()) take_in(lane.owners.front().bytes.peak());
  const uint64_t goal = options.to_limit ? std::max(highest, lane.total_bytes) : highest;
  // Room above for flags and the lane's name.
  return static_cast<double>(goal) * 1.28;
}

void plot_line(const char* id, const LaneCurves::Line& line, Rgb colour, float weight) {
  if (line.xs.empty()) return;
  ImPlot::SetNextLineStyle(vec(colour), px(weight));
  ImPlot::PlotLine(id, line.xs.data(), line.ys.data(), static_cast<int>(line.xs.size()));
}

void plot_curves(const Lane& lane, const LaneCurves& curves, const TimelineOptions& options) {
  if (options.used && !curves.used().xs.empty()) {
    ImPlot::SetNextFillStyle(vec(theme().used), 0.05F);
    ImPlot::PlotShaded("##used", curves.used().xs.data(), curves.used().ys.data(),
                       static_cast<int>(curves.used().xs.size()), 0.0);
    plot_line("##used", curves.used(), theme().used, 1.3F);
  }
  // From the back; requested mostly equals allocated, and shows only where it does not.
  for (const Curve c : {Curve::kReserved, Curve::kRequested, Curve::kAllocated}) {
    const auto index = static_cast<size_t>(c);
    const std::vector<double>& xs = curves.xs(c);
    if (!options.shown[index] || xs.empty()) continue;
    if (lane.of_driver && c != Curve::kAllocated) continue;
    const auto n = static_cast<int>(xs.size());
    const ImVec4 colour = vec(curve_colour(c));
    if (c != Curve::kRequested) {
      ImPlot::SetNextFillStyle(colour, c == Curve::kAllocated ? 0.30F : 0.10F);
      ImPlot::PlotShaded(curve_name(c), xs.data(), curves.ys(c).data(), n, 0.0);
    }
    ImPlot::SetNextLineStyle(colour, px(c == Curve::kRequested ? 1.0F : 1.6F));
    ImPlot::PlotLine(curve_name(c), xs.data(), curves.ys(c).data(), n);
  }
  for (size_t i = 0; options.owners && i < lane.owners.size(); ++i) {
    plot_line(lane.owners[i].name.c_str(), curves.owners()[i], owner_colour(lane.owners[i].name),
              1.4F);
  }
}

// What is said in a lane, the most important first.
enum LabelRank {
  kNameLabel,
  kOomLabel,
  kPeakLabel,
  kLimitLabel,
  kUsedLabel,
  kOwnerLabel,
  kPhaseLabel,
  kStepLabel
};

// Names at the right ends of the curves that have no place in the toolbar.
void draw_curve_names(const Lane& lane, const LaneCurves& curves, const PlotArea& area,
                      const TimelineOptions& options, Labels& labels) {
  const float line = ImGui::GetTextLineHeight();
  if (area.max.y - area.min.y < 4 * line) return;
  const auto put = [&](const LaneCurves::Line& curve, Rgb colour, const std::string& name) {
    if (curve.ys.empty() || curve.ys.back() <= 0) return;
    const float right = std::min(area.x(curve.xs.back()), area.max.x) - px(6);
    const float left = right - width_of(name);
    const float y = std::max(area.y(curve.ys.back()) - line - px(1), area.min.y + px(2));
    if (left < area.min.x) return;
    labels.add(kOwnerLabel, {left, y}, paint(colour), name, paint(theme().panel, 170));
  };
  if (options.used && static_cast<double>(lane.used.peak()) > area.top_bytes) {
    const std::string note =
        fmt::format("card used up to {}, above this scale", size_text(lane.used.peak()));
    const float left = area.max.x - width_of(note) - px(6);
    if (left > area.min.x + (area.max.x - area.min.x) / 2) {
      labels.add(kUsedLabel, {left, area.min.y + px(4)}, paint(theme().used), note);
    }
  } else if (options.used) {
    put(curves.used(), theme().used, "card used");
  }
  for (size_t i = 0; options.owners && i < lane.owners.size(); ++i) {
    put(curves.owners()[i], owner_colour(lane.owners[i].name), lane.owners[i].name);
  }
}

// Parts of the run that are unlike the other steps, as bars along the bottom.
void draw_phases(const Model& model, const Lane& lane, const PlotArea& area, Labels& labels) {
  const DeviceReport* report = model.report_of(lane);
  if (report == nullptr) return;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const FrameworkModel& m = *lane.memory;
  const auto x_of = [&](uint32_t event) {
    const int64_t at = m.time_ns[std::min(event, m.event_count() - 1)] - model.trace.start_ns;
    return area.x(static_cast<double>(at));
  };
  for (const Phase& p : report->phase_events) {
    const float left = std::max(x_of(p.first), area.min.x);
    const float right = std::min(std::max(x_of(p.last), left + px(2)), area.max.x);
    if (left > area.max.x || right < area.min.x) continue;
    const Rgb colour = p.kind == PhaseKind::kFirstStep    ? theme().dim
                       : p.kind == PhaseKind::kValidation ? theme().good
                                                          : theme().pending;
    // Above the numbers of the steps.
    const ImVec2 a(left, area.max.y - px(6) - 2 * ImGui::GetTextLineHeight());
    draw.AddRectFilled({left, area.min.y}, {right, area.max.y}, paint(colour, 11));
    draw.AddRectFilled({left, area.max.y - px(3)}, {right, area.max.y}, paint(colour));
    if (area.max.y - area.min.y < px(110)) continue;
    std::string name(phase_name(p.kind));
    std::replace(name.begin(), name.end(), '_', ' ');
    const float room = right - left - px(8);
    if (room < ImGui::GetFontSize() * 1.6F) continue;
    labels.add(kPhaseLabel, {left + px(4), a.y}, paint(colour), fitted(name, room));
  }
}

// Iterations as stripes, while they are wide enough to see; their numbers where there is room.
void draw_steps(const Model& model, const Lane& lane, const PlotArea& area, Labels& labels) {
  const std::vector<uint32_t>& starts = model.steps_of(lane).boundaries;
  if (starts.size() < 2) return;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const FrameworkModel& m = *lane.memory;
  const auto time = [&](uint32_t event) {
    return static_cast<double>(m.time_ns[std::min(event, m.event_count() - 1)] -
                               model.trace.start_ns);
  };
  auto first = static_cast<size_t>(
      std::partition_point(starts.begin(), starts.end(),
                           [&](uint32_t e) { return time(e) < area.view.begin; }) -
      starts.begin());
  if (first > 0) --first;
  const float tick = area.max.y - px(5);
  float drawn_to = -1e9F;
  for (size_t i = first; i < starts.size(); ++i) {
    const float x = area.x(time(starts[i]));
    if (x > area.max.x) break;
    if (x < drawn_to + px(3)) continue;  // the ticks would run together
    drawn_to = x;
    draw.AddLine({x, tick}, {x, area.max.y}, paint(theme().dim, 220), px(1));
    if (i + 1 >= starts.size()) break;
    const float end = area.x(time(starts[i + 1]));
    if (end - x < px(24)) continue;
    if (i % 2 == 1) {
      draw.AddRectFilled({x, area.min.y}, {end, area.max.y},
                         paint(theme().dark ? Rgb{255, 255, 255} : Rgb{0, 0, 0}, 9));
    }
    if (area.max.y - area.min.y < px(80)) continue;
    const std::string name = fmt::format("step {}", i);
    const float left = std::max(x, area.min.x) + px(4);
    if (width_of(name) + px(8) < std::min(end, area.max.x) - left) {
      labels.add(kStepLabel, {left, area.max.y - ImGui::GetTextLineHeight() - px(2)},
                 paint(theme().dim), name);
    }
  }
}

void draw_limit(const PlotArea& area, double bytes, const std::string& label, Labels& labels) {
  if (bytes <= 0 || bytes > area.top_bytes) return;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float y = std::round(area.y(bytes));
  draw_dashes(draw, {area.min.x, y}, {area.max.x, y}, paint(theme().limit, 220), px(6), px(1.5F));
  const float width = width_of(label);
  labels.add(kLimitLabel, {area.max.x - width - px(6), y + px(2)}, paint(theme().limit), label);
}

void draw_peak(const Model& model, const Lane& lane, const PlotArea& area, Labels& labels) {
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
  const float flag = std::max(y - r * 2 - px(1), area.min.y + ImGui::GetFontSize() + px(5));
  labels.add_flag(kPeakLabel, {x, flag}, area.min.x, area.max.x, theme().allocated,
                  "peak " + size_text(peak.bytes));
}

void draw_ooms(const Model& model, uint32_t lane, const PlotArea& area, Labels& labels) {
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
    labels.add_flag(kOomLabel, {x, area.max.y - px(3)}, area.min.x, area.max.x, theme().bad, label);
  }
}

void draw_name(const Model& model, const Selection& selection, uint32_t index, const PlotArea& area,
               const TimelineOptions& options, Labels& labels) {
  const Lane& lane = model.lanes[index];
  const ImVec2 pad(px(8), px(4));
  ImVec2 at = area.min + pad;
  const float line = ImGui::GetTextLineHeight() + px(2);
  const bool chosen = index == selection.lane && model.lanes.size() > 1;
  std::string facts;
  uint32_t event = 0;
  if (selection.event_in_lane(model, index, event)) {
    const CurveValues now = lane.curves.values_after(event);
    for (const Curve c : curves_of(lane)) {
      const auto i = static_cast<size_t>(c);
      if (options.shown[i]) {
        facts += fmt::format("{}{} {}", facts.empty() ? "" : "   ", curve_name(c, lane),
                             size_text(now[i]));
      }
    }
  }
  const int64_t now_ns = selection.time_ns(model);
  if (options.used && lane.used.within(now_ns, now_ns).known()) {
    facts +=
        fmt::format("{}card used {}", facts.empty() ? "" : "   ", size_text(lane.used.at(now_ns)));
  }
  const float room = area.max.x - area.min.x - 2 * pad.x;
  float bold_width = 0;
  {
    const WithFont bold(fonts().bold);
    bold_width = width_of(lane.name);
    labels.add(kNameLabel, at, paint(chosen ? theme().accent : theme().text),
               fitted(lane.name, room), paint(theme().panel, 170));
  }
  std::string card = lane.card;
  if (lane.total_bytes != 0) card += (card.empty() ? "" : ", ") + size_text(lane.total_bytes);
  const float after = bold_width + px(10);
  labels.add(kNameLabel, {at.x + after, at.y}, paint(theme().dim),
             fitted(card, std::max(0.0F, room - after)));
  if (area.max.y - area.min.y < px(104)) return;
  at.y += line;
  labels.add(kNameLabel, at, paint(theme().dim), fitted(facts, room), paint(theme().panel, 170));
}

void draw_cursors(const Model& model, const Selection& selection, const PlotArea& area) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float x = std::round(area.x(selection.time(model)));
  draw.AddLine({x, area.min.y}, {x, area.max.y}, paint(theme().cursor, 210), px(1.2F));
  if (!selection.compare || selection.lane >= model.lanes.size()) return;
  const float cx = std::round(area.x(selection.compared_time(model)));
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

const char* curve_name(Curve curve, const Lane& lane) {
  return lane.of_driver ? "held by this process" : curve_name(curve);
}

std::vector<Curve> curves_of(const Lane& lane) {
  // Driver allocations are given out as they were asked for: the three are one.
  if (lane.of_driver) return {Curve::kAllocated};
  return {Curve::kAllocated, Curve::kRequested, Curve::kReserved};
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
  if (lane_ == &lane && count_ == columns && view_.begin == view.begin && view_.end == view.end) {
    return;
  }
  lane_ = &lane;
  view_ = view;
  count_ = columns;
  const TimeWindow window{model.trace.start_ns, view.begin, view.end};
  columns_ = columns_of(*lane.memory, lane.curves, window, columns);
  for (size_t c = 0; c < kCurves; ++c) {
    curve_points(*lane.memory, columns_, static_cast<Curve>(c), window, model.trace.end_ns, xs_[c],
                 ys_[c]);
  }
  lane.used.points(window, columns, model.trace.end_ns, used_.xs, used_.ys);
  owners_.resize(lane.owners.size());
  for (size_t i = 0; i < owners_.size(); ++i) {
    lane.owners[i].bytes.points(window, columns, model.trace.end_ns, owners_[i].xs, owners_[i].ys);
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
    plot_curves(lane, curves, options);
    ImPlot::EndPlot();
  }
  ImGui::PopID();
  ImGui::PushClipRect(area.min, area.max, true);
  Labels labels;
  if (options.steps) {
    draw_steps(model, lane, area, labels);
    draw_phases(model, lane, area, labels);
  }
  draw_limit(area, static_cast<double>(lane.total_bytes),
             "the card holds " + size_text(lane.total_bytes), labels);
  if (const DeviceReport* report = model.report_of(lane);
      report != nullptr && report->limit.source == LimitSource::kFraction) {
    const uint64_t limit = report->limit.bytes;
    draw_limit(area, static_cast<double>(limit), "the allocator's own limit " + size_text(limit),
               labels);
  }
  if (lane.memory->event_count() == 0 && lane.used.empty()) {
    draw_empty(area, "no allocator events were recorded");
  }
  draw_curve_names(lane, curves, area, options, labels);
  draw_cursors(model, selection, area);
  draw_peak(model, lane, area, labels);
  draw_ooms(model, index, area, labels);
  draw_name(model, selection, index, area, options, labels);
  labels.draw(*ImGui::GetWindowDrawList());
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

float mark_rows_height(const Model& model, const Selection& selection, uint32_t process) {
  // Of many ranks, the one that is looked at.
  const bool chosen =
      selection.lane < model.lanes.size() && model.lanes[selection.lane].process == process;
  if (!chosen && model.lanes.size() > kMarksOfAll) return 0;
  const MarkLanes& marks = model.marks[process];
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
