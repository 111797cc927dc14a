#include "viewer/panels/timeline/lanes.h"

#include <fmt/format.h>
#include <implot.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "analysis/wording.h"
#include "viewer/model/owner_names.h"
#include "viewer/panels/timeline/lane_scale.h"
#include "viewer/panels/timeline/steps.h"
#include "viewer/widgets/drawing.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/labels.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

void plot_line(const char* id, const LaneCurves::Line& line, Rgb colour, float weight) {
  if (line.xs.empty()) return;
  ImPlot::SetNextLineStyle(vec(colour), px(weight));
  ImPlot::PlotLine(id, line.xs.data(), line.ys.data(), static_cast<int>(line.xs.size()));
}

// The overlay has no fill and one colour, so that the lane's own curves stay readable.
void plot_overlay(const LaneCurves& curves, const TimelineOptions& options, bool of_driver) {
  const auto plot = [&](const char* id, Curve c, float weight, float alpha) {
    const std::vector<double>& xs = curves.xs(c);
    if (!options.shown[static_cast<size_t>(c)] || xs.empty()) return;
    ImPlot::SetNextLineStyle(vec(theme().compare, alpha), px(weight));
    ImPlot::PlotLine(id, xs.data(), curves.ys(c).data(), static_cast<int>(xs.size()));
  };
  if (!of_driver) plot("##their reserved", Curve::kReserved, 1.0F, 0.55F);
  plot("##theirs", Curve::kAllocated, 1.8F, 1.0F);
}

void plot_curves(const Lane& lane, const LaneCurves& curves, const TimelineOptions& options) {
  if (options.used) plot_line("##used", curves.used(), theme().used, 1.3F);
  // From back to front. Requested mostly equals allocated, and is visible only where it does not.
  for (const Curve c : {Curve::kReserved, Curve::kRequested, Curve::kAllocated}) {
    const auto index = static_cast<size_t>(c);
    const std::vector<double>& xs = curves.xs(c);
    if (!options.shown[index] || xs.empty()) continue;
    if (const auto known = curves_of(lane); std::find(known.begin(), known.end(), c) == known.end())
      continue;
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

// The labels in a lane, the most important first.
enum LabelRank {
  kNameLabel,
  kOomLabel,
  kPeakLabel,
  kLimitLabel,
  kUsedLabel,
  kOverlayLabel,
  kOwnerLabel
};

// Names of the curves that are not in the toolbar, at their right ends.
void draw_curve_names(const Lane& lane, const LaneCurves& curves, const PlotArea& area,
                      const TimelineOptions& options, Labels& labels) {
  const float line = ImGui::GetTextLineHeight();
  if (area.max.y - area.min.y < 4 * line) return;
  const auto put = [&](const LaneCurves::Line& curve, Rgb colour, const std::string& name) {
    if (curve.ys.empty()) return;
    // At its end; where it ends at 0, at its maximum.
    size_t at = curve.ys.size() - 1;
    if (curve.ys[at] <= 0) {
      at = static_cast<size_t>(std::max_element(curve.ys.begin(), curve.ys.end()) -
                               curve.ys.begin());
    }
    if (curve.ys[at] <= 0) return;
    const float right = std::min(area.x_at(curve.xs[at]), area.max.x) - px(6);
    const float left = right - width_of(name);
    const float y = std::max(area.y(curve.ys[at]) - line - px(1), area.min.y + px(2));
    if (left < area.min.x) return;
    labels.add(kOwnerLabel, {left, y}, paint(colour), name);
  };
  if (options.used && static_cast<double>(lane.used.peak()) > area.top_bytes) {
    const std::string note =
        fmt::format("card used: up to {}, above this scale", size_text(lane.used.peak()));
    const float left = area.max.x - width_of(note) - px(6);
    if (left > area.min.x + (area.max.x - area.min.x) / 2) {
      labels.add(kUsedLabel, {left, area.min.y + px(4)}, paint(theme().used), note);
    }
  } else if (options.used) {
    put(curves.used(), theme().used, "card used");
  }
  for (size_t i = 0; options.owners && i < lane.owners.size(); ++i) {
    put(curves.owners()[i], owner_colour(lane.owners[i].name), owner_title(lane.owners[i].name));
  }
}

// From `begin_x` on.
void draw_limit(const PlotArea& area, float begin_x, double bytes, const std::string& label,
                Labels& labels) {
  if (bytes <= 0 || bytes > area.top_bytes || begin_x >= area.max.x) return;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float y = std::round(area.y(bytes));
  draw_dashes(draw, {begin_x, y}, {area.max.x, y}, paint(theme().limit, 220), px(6), px(1.5F));
  const float width = width_of(label);
  const float right = area.max.x - width - px(6);
  const float left = begin_x + px(8);
  const float above = y - ImGui::GetTextLineHeight() - px(2);
  labels.add_at_either(kLimitLabel,
                       {{right, y + px(2)},
                        {right, above},
                        {left, y + px(2)},
                        {left, above},
                        {(left + right) / 2, y + px(2)}},
                       paint(theme().limit), label);
}

// Of a kept window, whose curve does not show it.
std::string higher_before_text(const Model& model, const Lane& lane) {
  const DeviceReport* const report = model.report_of(lane);
  if (report == nullptr || report->run.allocated_peak.bytes <= report->allocated_peak.bytes) {
    return "";
  }
  return fmt::format(", {} before this window", size_text(report->run.allocated_peak.bytes));
}

void draw_peak(const Model& model, const Lane& lane, const PlotArea& area, Labels& labels) {
  const Peak& peak = lane.memory->allocated_peak;
  if (lane.memory->event_count() == 0) return;
  const float x = area.x(since_start(model, peak.time_ns));
  if (x < area.min.x || x > area.max.x) return;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float y = area.y(static_cast<double>(peak.bytes));
  const float r = px(4);
  draw.AddTriangleFilled({x, y - px(1)}, {x - r, y - r * 2}, {x + r, y - r * 2},
                         paint(theme().allocated));
  if (area.max.y - area.min.y < px(90)) return;
  const float flag = std::max(y - r * 2 - px(1), area.min.y + ImGui::GetFontSize() + px(5));
  // Above the peak; below it where the lane's name is in the way.
  const float height = ImGui::GetFontSize() + px(4);
  labels.add_flag(kPeakLabel, {x, flag}, area.min.x, area.max.x, theme().allocated,
                  "peak " + size_text(peak.bytes) + higher_before_text(model, lane),
                  {{x, y + height + px(4)}, {x, y + 2 * height + px(6)}});
}

// With as many digits as it takes to tell it from the values of the other curves.
std::string size_beside(uint64_t bytes, const CurveValues& others) {
  const std::string least = size_text(bytes);
  const auto like = [&](uint64_t other) { return other != bytes && size_text(other) == least; };
  const auto other = std::find_if(others.begin(), others.end(), like);
  if (other == others.end()) return least;
  const std::string text = size_texts(bytes, *other).first;
  return text.ends_with("bytes") ? least : text;  // a difference that no picture can show
}

// One flag for errors that are too close to each other for one each.
struct OomFlag {
  float x = 0;
  size_t count = 0;
  uint64_t least_bytes = 0;
  uint64_t most_bytes = 0;

  std::string text() const {
    const std::string least = size_text(least_bytes);
    const std::string most = size_text(most_bytes);
    return fmt::format("{}, requested {}", count == 1 ? "OOM" : grouped(count) + " OOMs",
                       least == most ? most : least + " to " + most);
  }
};

void draw_ooms(const Model& model, uint32_t lane, const PlotArea& area, Labels& labels) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  float last_line = -1e9F;
  std::vector<OomFlag> flags;
  for (const OomPoint& oom : model.ooms) {
    if (oom.lane != lane) continue;
    const float x = area.x(since_start(model, oom.time_ns));
    if (x < area.min.x || x > area.max.x) continue;
    if (x >= last_line + 1) {
      last_line = x;
      draw.AddLine({x, area.min.y}, {x, area.max.y}, paint(theme().bad, 230), px(1.5F));
    }
    const uint64_t bytes = oom.requested_bytes;
    if (flags.empty() || x - flags.back().x >= width_of(flags.back().text()) + px(14)) {
      flags.push_back({x, 1, bytes, bytes});
    } else {
      OomFlag& flag = flags.back();
      ++flag.count;
      flag.least_bytes = std::min(flag.least_bytes, bytes);
      flag.most_bytes = std::max(flag.most_bytes, bytes);
    }
  }
  for (const OomFlag& flag : flags) {
    labels.add_flag(kOomLabel, {flag.x, area.max.y - px(3)}, area.min.x, area.max.x, theme().bad,
                    flag.text());
  }
}

void draw_name(const Model& model, const Selection& selection, uint32_t index, const PlotArea& area,
               const TimelineOptions& options, LaneDrawing& drawing, Labels& labels) {
  const Lane& lane = model.lanes[index];
  const ImVec2 pad(px(8), px(4));
  ImVec2 at = area.min + pad;
  const float line = ImGui::GetTextLineHeight() + px(2);
  const bool chosen = index == selection.cursor.lane() && model.lanes.size() > 1;
  std::string facts;
  uint32_t event = 0;
  if (selection.cursor.event_in_lane(model, index, event)) {
    const CurveValues now = lane.curves.values_after(event);
    for (const Curve c : curves_of(lane)) {
      const auto i = static_cast<size_t>(c);
      if (options.shown[i]) {
        facts += fmt::format("{}{} {}", facts.empty() ? "" : "   ", curve_name(c, lane),
                             size_beside(now[i], now));
      }
    }
  }
  const uint64_t used =
      options.used ? drawing.card_used_at(model, lane, selection.cursor.time_ns(model)) : 0;
  if (used != 0) {
    facts += fmt::format("{}card used {}", facts.empty() ? "" : "   ", size_text(used));
  }
  const float room = area.max.x - area.min.x - 2 * pad.x;
  float bold_width = 0;
  {
    const WithFont bold(fonts().bold);
    bold_width = width_of(lane.name);
    labels.add(kNameLabel, at, paint(chosen ? theme().accent : theme().text),
               fitted(lane.name, room));
  }
  std::string card = lane.card;
  if (lane.total_bytes != 0) card += (card.empty() ? "" : ", ") + size_text(lane.total_bytes);
  const float after = bold_width + px(10);
  labels.add(kNameLabel, {at.x + after, at.y}, paint(theme().dim),
             fitted(card, std::max(0.0F, room - after)));
  if (area.max.y - area.min.y < px(kTwoLinesPx)) return;
  at.y += line;
  labels.add(kNameLabel, at, paint(theme().dim), fitted(facts, room));
}

void draw_cursors(const Model& model, const Selection& selection, const PlotArea& area) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float x = std::round(area.x(selection.cursor.time(model)));
  draw.AddLine({x, area.min.y}, {x, area.max.y}, paint(theme().cursor, 210), px(1.2F));
  if (!selection.comparison.reference() || selection.cursor.lane() >= model.lanes.size()) return;
  const float cx = std::round(area.x(selection.comparison.time(model)));
  if (std::abs(cx - x) < px(2)) return;  // the same time on another rank
  draw_dashes(draw, {cx, area.min.y}, {cx, area.max.y}, paint(theme().compare), px(4), px(1.5F));
}

void draw_empty(const PlotArea& area, const char* why) {
  const float width = width_of(why);
  ImGui::GetWindowDrawList()->AddText(
      {(area.min.x + area.max.x - width) / 2, (area.min.y + area.max.y) / 2}, paint(theme().dim),
      why);
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
  // The driver does not round or cache: the three curves are the same.
  if (lane.of_driver) return {Curve::kAllocated};
  if (!lane.requests_known) return {Curve::kAllocated, Curve::kReserved};
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

void LaneCurves::update(const Model& model, const Lane& lane, const VisibleRange& view,
                        uint32_t columns, double offset, const EventAxis* axis) {
  touched_ = true;
  const std::weak_ptr<const Model> now = model.weak_from_this();
  const bool same_model = !of_.owner_before(now) && !now.owner_before(of_);
  const bool same_axis =
      (axis == nullptr ? nullptr : axis->memory()) == (axis_ ? axis_->memory() : nullptr);
  if (same_model && same_axis && lane_ == &lane && count_ == columns && view_.begin == view.begin &&
      view_.end == view.end && offset_ == offset) {
    moved_ = false;
    return;
  }
  moved_ = true;
  of_ = now;
  offset_ = offset;
  lane_ = &lane;
  view_ = view;
  count_ = columns;
  stop_ns_ = model.end_of(lane);
  axis_ = axis == nullptr ? std::nullopt : std::optional<EventAxis>(*axis);
  TimeWindow window{model.trace.start_ns, view.begin - offset, view.end - offset};
  if (axis_) {
    edges_ = axis_->edges(view.begin, view.end, columns);
    for (double& edge : edges_) edge -= offset;
    window.edges = &edges_;
  }
  window_ = window;
  columns_.begin(*lane.memory, lane.curves, window, columns);
  make_points();
  lane.used.points(window, columns, stop_ns_, used_.xs, used_.ys);
  place(used_.xs);
  owners_.resize(lane.owners.size());
  for (size_t i = 0; i < owners_.size(); ++i) {
    lane.owners[i].bytes.points(window, columns, stop_ns_, owners_[i].xs, owners_[i].ys);
    place(owners_[i].xs);
  }
}

void LaneCurves::make_points() {
  window_.edges = axis_ ? &edges_ : nullptr;  // this object may have moved
  for (size_t c = 0; c < kCurves; ++c) {
    curve_points(*lane_->memory, columns(), static_cast<Curve>(c), window_, stop_ns_, xs_[c],
                 ys_[c]);
    for (double& x : xs_[c]) x += offset_;
    place(xs_[c]);
  }
}

void LaneCurves::place(std::vector<double>& xs) const {
  if (!axis_) return;
  for (double& x : xs) x = axis_->position(x);
}

bool LaneCurves::refine(int64_t budget_ns) {
  if (!std::exchange(touched_, false) || is_exact()) return true;
  const bool rests = !moved_ || budget_ns < 0;
  if (rests && budget_ns != 0 && columns_.work(budget_ns)) make_points();
  return is_exact();
}

namespace {

void plot_lane(const Lane& lane, const LaneDrawing& drawing, const PlotArea& area,
               const TimelineOptions& options, const std::vector<Tick>& ticks) {
  const ImVec2 size = area.max - area.min;
  if (!ImPlot::BeginPlot("##curves", size,
                         ImPlotFlags_CanvasOnly | ImPlotFlags_NoInputs | ImPlotFlags_NoFrame)) {
    return;
  }
  constexpr ImPlotAxisFlags kGridOnly =
      ImPlotAxisFlags_NoTickLabels | ImPlotAxisFlags_NoTickMarks | ImPlotAxisFlags_NoLabel;
  ImPlot::SetupAxes(nullptr, nullptr, kGridOnly, kGridOnly);
  ImPlot::SetupAxesLimits(area.position(area.view.begin), area.position(area.view.end), 0,
                          area.top_bytes, ImPlotCond_Always);
  std::vector<double> at;
  for (const Tick& t : ticks) at.push_back(area.position(t.at));
  if (!at.empty()) ImPlot::SetupAxisTicks(ImAxis_X1, at.data(), static_cast<int>(at.size()));
  at.clear();
  for (const Tick& t : area_ticks(area)) at.push_back(t.at);
  if (!at.empty()) ImPlot::SetupAxisTicks(ImAxis_Y1, at.data(), static_cast<int>(at.size()));
  plot_curves(lane, drawing.own, options);
  if (drawing.overlay) plot_overlay(drawing.laid_over, options, drawing.overlay->of().of_driver);
  ImPlot::EndPlot();
}

void draw_limits(const Model& model, const Lane& lane, const PlotArea& area, Labels& labels) {
  draw_limit(area, area.min.x, static_cast<double>(lane.total_bytes),
             "card memory " + size_text(lane.total_bytes), labels);
  if (const uint64_t limit = own_limit(model, lane); limit != 0) {
    const bool at_least = model.report_of(lane)->limit.at_least;
    const uint32_t from = within_limit_from(lane, limit);
    if (from == lane.memory->event_count()) return;
    const float begin_x =
        from == 0 ? area.min.x : area.x(since_start(model, lane.memory->time_ns[from]));
    draw_limit(area, std::max(begin_x, area.min.x), static_cast<double>(limit),
               fmt::format("allocator limit{} {}", at_least ? " at least" : "", size_text(limit)),
               labels);
  }
}

// The name of the overlay, at its end.
void draw_overlay_name(const Model& model, const LaneDrawing& drawing, const PlotArea& area,
                       Labels& labels) {
  if (!drawing.overlay || drawing.laid_over.xs(Curve::kAllocated).empty()) return;
  const std::string name = overlay_name(model, *drawing.overlay);
  const float end = area.x_at(drawing.laid_over.xs(Curve::kAllocated).back());
  const float right = std::clamp(end, area.min.x, area.max.x) - px(6);
  const float left = std::max(right - width_of(name), area.min.x + px(6));
  const double bytes = drawing.laid_over.ys(Curve::kAllocated).back();
  const float line = ImGui::GetTextLineHeight();
  const float y = std::clamp(area.y(bytes) - line - px(3), area.min.y + px(2),
                             std::max(area.min.y + px(2), area.max.y - line));
  labels.add(kOverlayLabel, {left, y}, paint(theme().compare),
             fitted(name, area.max.x - area.min.x - px(12)));
}

}  // namespace

std::string overlay_name(const Model& model, const Overlay& overlay) {
  const bool other = overlay.model != &model;
  return (other ? name_beside(*overlay.model, model) + ": " : "") + overlay.of().name;
}

std::vector<Tick> area_ticks(const PlotArea& area) {
  constexpr int kMost = 10;
  const auto fit = static_cast<int>((area.max.y - area.min.y) / px(34)) + 1;
  return byte_ticks(area.top_bytes, std::min(fit, kMost));
}

uint64_t LaneDrawing::card_used_at(const Model& model, const Lane& lane, int64_t time_ns) {
  const std::shared_ptr<const Model> of = model.weak_from_this().lock();
  if (of == nullptr || of != card_use_.model.lock() || card_use_.lane != &lane ||
      card_use_.time_ns != time_ns) {
    card_use_ = {of, &lane, time_ns, lane.card_used_at(time_ns)};
  }
  return card_use_.bytes;
}

PlotArea draw_lane(const Model& model, const Selection& selection, uint32_t index,
                   LaneDrawing& drawing, const TimelineOptions& options,
                   const std::vector<Tick>& ticks, double top_bytes, const EventAxis* axis,
                   ImVec2 size) {
  const Lane& lane = model.lanes[index];
  const auto columns = std::max(2U, static_cast<uint32_t>(size.x));
  drawing.overlay = options.overlay ? selection.overlay_of(model, index) : std::nullopt;
  drawing.own.update(model, lane, selection.view.range(), columns, 0, axis);
  if (const auto& over = drawing.overlay) {
    drawing.laid_over.update(*over->model, over->of(), selection.view.range(), columns,
                             over->offset, axis);
  }
  const float strip = steps_strip_px(model, lane, options, size.y);
  drawing.top_bytes =
      top_bytes > 0 ? top_bytes : lane_top(model, lane, options, drawing.overlay, size.y - strip);
  PlotArea area{ImGui::GetCursorScreenPos(), {}, selection.view.range(), drawing.top_bytes, axis};
  area.max = area.min + ImVec2(size.x, size.y - strip);
  ImGui::PushID(static_cast<int>(index));
  plot_lane(lane, drawing, area, options, ticks);
  ImGui::PopID();
  if (strip > 0) {  // the next item goes below it
    ImGui::SetCursorScreenPos({area.min.x, area.max.y});
    ImGui::Dummy({size.x, strip});
  }
  const ImVec2 whole_max(area.max.x, area.max.y + strip);
  ImGui::PushClipRect(area.min, whole_max, true);
  Labels labels;
  if (options.steps) draw_steps(model, lane, area, strip);
  draw_limits(model, lane, area, labels);
  if (lane.memory->event_count() == 0 && lane.used.empty()) {
    draw_empty(area, "no allocator events were recorded");
  }
  draw_curve_names(lane, drawing.own, area, options, labels);
  draw_overlay_name(model, drawing, area, labels);
  draw_cursors(model, selection, {area.min, whole_max, area.view, area.top_bytes, axis});
  draw_peak(model, lane, area, labels);
  draw_ooms(model, index, area, labels);
  draw_name(model, selection, index, area, options, drawing, labels);
  labels.draw(*ImGui::GetWindowDrawList());
  ImGui::PopClipRect();
  return area;
}

void draw_byte_labels(const PlotArea& area) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  for (const Tick& t : area_ticks(area)) {
    const float half = ImGui::GetTextLineHeight() / 2;
    const float y = std::clamp(area.y(t.at) - half, area.min.y, area.max.y - 2 * half);
    draw.AddText({std::round(area.min.x - width_of(t.label) - px(8)), std::round(y)},
                 paint(theme().dim), t.label.c_str());
  }
}

}  // namespace tidemark::view
