#include "viewer/panels/stack/stack_panel.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>

#include "analysis/wording.h"
#include "viewer/model/owner_names.h"
#include "viewer/panels/stack/band_tooltip.h"
#include "viewer/panels/timeline/time_axis.h"
#include "viewer/widgets/drawing.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/key_table.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr float kGapPx = 8;
constexpr double kAbove = 1.06;  // space above the highest band
constexpr double kMostZoom = 1e4;

// The events of a lane within a range of the axis.
std::pair<uint32_t, uint32_t> events_of(const Model& model, const Lane& lane,
                                        const VisibleRange& view, double offset) {
  const auto before = [&](double time) {
    return lane.memory->first_event_not(
        [&](int64_t t) { return static_cast<double>(t - model.trace.start_ns) + offset < time; });
  };
  const uint32_t first = before(view.begin);
  return {first == 0 ? 0 : first - 1, before(view.end)};
}

double highest_in(const Model& model, const Lane& lane, Curve curve, const VisibleRange& view,
                  double offset) {
  const auto [first, last] = events_of(model, lane, view, offset);
  if (first >= last) return 0;
  return static_cast<double>(lane.curves.extremes(first, last).max[static_cast<size_t>(curve)]);
}

double highest_of(const Lane& lane, Curve curve) {
  return static_cast<double>(curve == Curve::kReserved ? lane.memory->reserved_peak.bytes
                                                       : lane.memory->active_peak.bytes);
}

// The boundary after the last step may be the end of the history, where no event is.
double step_begin(const Model& model, const Lane& lane, uint32_t step) {
  const uint32_t event =
      std::min(model.steps_of(lane).boundaries[step], lane.memory->event_count() - 1);
  return since_start(model, lane.memory->time_ns[event]);
}

double step_span(const Model& model, const Lane& lane, uint32_t step) {
  const Steps& steps = model.steps_of(lane);
  const bool last = step + 1 >= steps.boundaries.size();
  return (last ? model.span_ns() : step_begin(model, lane, step + 1)) -
         step_begin(model, lane, step);
}

}  // namespace

StackPanel::StackPanel()
    : indexes_(std::make_shared<StackIndexes>()),
      views_{StackView(indexes_), StackView(indexes_)} {}

void StackPanel::set_wake(const std::function<void()>& wake) {
  for (StackView& view : views_) view.set_wake(wake);
  legend.set_wake(wake);
  stretch_.set_wake(wake);
}

void StackPanel::forget_trace() {
  for (StackView& view : views_) view.forget();
  legend.forget();
  indexes_->clear();
  pair_.reset();
  pair_of_ = nullptr;
  show_whole_height();
}

void StackPanel::show_whole_height() {
  zoom_ = 1;
  bottom_share_ = 0;
}

bool StackPanel::visible() const {
  return ImGui::GetFrameCount() - frame_ <= 1;
}

std::vector<StackPanel::Plot> StackPanel::plots_of(const Model& model, const Selection& selection) {
  const uint32_t own = selection.cursor.lane();
  const Lane& lane = model.lanes[own];
  steps_ = options.steps && model.steps_of(lane).count() > 1;
  if (steps_) {
    if (pair_of_ != &lane || !pair_) {
      pair_of_ = &lane;
      titled_.reset();
      const uint32_t begun = model.steps_of(lane).begun(lane.memory->event_count());
      const bool known =
          options.pair && options.pair->ordinary < begun && options.pair->unlike < begun;
      pair_ =
          known ? options.pair : steps_to_compare(*lane.memory, lane.curves, model.steps_of(lane));
      step_view_ = {};
    }
    if (pair_) {
      const double length =
          std::max(step_span(model, lane, pair_->ordinary), step_span(model, lane, pair_->unlike));
      if (length != step_view_.length_ns()) {
        step_view_.set_length(length);
        step_view_.fit();
      }
      if (titled_ != pair_) name_steps(model, lane);
      const auto plot = [&](uint32_t step, const std::string& title) {
        return Plot{&model, own,  -step_begin(model, lane, step),
                    title,  true, step_span(model, lane, step),
                    0.0};
      };
      return {plot(pair_->ordinary, titles_.ordinary), plot(pair_->unlike, titles_.unlike)};
    }
    steps_ = false;
  }
  const auto end_of = [](const Model& of, uint32_t number) {
    return since_start(of, of.end_of(of.lanes[number]));
  };
  std::vector<Plot> plots = {{&model, own, 0, lane.name, true, end_of(model, own)}};
  if (const auto over = selection.overlay_of(model, own)) {
    plots.push_back({over->model, over->lane, over->offset, overlay_name(model, *over),
                     over->model == &model, end_of(*over->model, over->lane) + over->offset});
  }
  return plots;
}

StackWish StackPanel::wish_of(const Plot& plot, const Selection& selection, ImVec2 size) const {
  StackWish wish;
  wish.model = plot.model;
  wish.lane = plot.lane;
  wish.by = by_;
  wish.categories_known = plot.model->categories_known;
  wish.order = options.order;
  wish.hidden = legend.hidden();
  wish.view = steps_ ? step_view_.range() : selection.view.range();
  wish.offset = plot.offset;
  if (axis_) {
    wish.axis = axis_->memory();
    wish.axis_start_ns = plot.model->trace.start_ns;
  }
  wish.width_px = std::max(1, static_cast<int>(size.x));
  wish.height_px = std::max(1, static_cast<int>(size.y));
  wish.top_bytes = top_bytes_;
  if (!wish.hidden.empty() && top_bytes_ == 0) {
    wish.fit = true;
    wish.top_bytes = kAbove;
  }
  wish.zoom = zoom_;
  wish.bottom_share = bottom_share_;
  wish.colour_by = by_ == StackBy::kBlock ? selection.colouring.by : ColourBy::kCategory;
  wish.search = folded(selection.highlights.search);
  wish.dark = theme().dark;
  return wish;
}

void StackPanel::draw_byte_axis(const PlotArea& area, const StackView& view) {
  if (view.picture() == nullptr) return;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const double bottom = view.picture()->bottom_bytes;
  const double top = view.picture()->top_bytes;
  const float height = area.max.y - area.min.y;
  const int fit = std::min(10, static_cast<int>(height / px(34)) + 1);
  const double parts = top / (top - bottom);
  const float half = ImGui::GetTextLineHeight() / 2;
  for (const Tick& t : byte_ticks(top, static_cast<int>(std::min(fit * parts, 1e6)))) {
    if (t.at < bottom) continue;
    const float y = view.y(area, t.at);
    draw.AddLine({area.min.x, std::round(y)}, {area.max.x, std::round(y)}, paint(theme().line, 60));
    const float at = std::clamp(y - half, area.min.y, std::max(area.min.y, area.max.y - 2 * half));
    draw.AddText({std::round(area.min.x - width_of(t.label) - px(8)), std::round(at)},
                 paint(theme().dim), t.label.c_str());
  }
}

// The peak, errors, and the name.
void StackPanel::draw_marks(const Plot& plot, const PlotArea& area, StackView& view) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const Model& model = *plot.model;
  draw.PushClipRect(area.min, area.max, true);
  if (const float end = plot.end ? area.x(*plot.end) : area.max.x; end < area.max.x) {
    draw.AddRectFilled({end, area.min.y}, area.max, paint(theme().panel, 225));
    draw.AddLine({end, area.min.y}, {end, area.max.y}, paint(theme().dim), px(1));
  }
  if (const float begin = plot.begin ? area.x(*plot.begin) : area.min.x; begin > area.min.x) {
    draw.AddRectFilled(area.min, {begin, area.max.y}, paint(theme().panel, 225));
    draw.AddLine({begin, area.min.y}, {begin, area.max.y}, paint(theme().dim), px(1));
  }
  float last_line = -1e9F;
  float last_flag = -1e9F;
  for (const OomPoint& oom : model.ooms) {
    if (oom.lane != plot.lane) continue;
    const float x = area.x(since_start(model, oom.time_ns) + plot.offset);
    if (x < last_line + 1 || x < area.min.x || x > area.max.x) continue;
    last_line = x;
    draw.AddLine({x, area.min.y}, {x, area.max.y}, paint(theme().bad, 230), px(1.5F));
    // One flag for errors that are too close to each other for one each.
    const std::string label = "OOM, requested " + size_text(oom.requested_bytes);
    if (x < last_flag + width_of(label) + px(20)) continue;
    last_flag = x;
    draw_flag(draw, {x, area.max.y - px(3)}, area.min.x, area.max.x, theme().bad, label);
  }
  const std::string name = fitted(plot.title, area.max.x - area.min.x - px(20));
  const WithFont bold(fonts().bold);
  const ImVec2 at = area.min + ImVec2(px(6), px(3));
  draw.AddRectFilled(at - ImVec2(px(3), px(1)),
                     at + ImVec2(width_of(name) + px(3), ImGui::GetTextLineHeight() + px(1)),
                     paint(theme().panel, 215), px(3));
  draw.AddText(at, paint(theme().text), name.c_str());
  if (view.picture() == nullptr) {
    const char* wait = "adding up the blocks ...";
    draw.AddText({(area.min.x + area.max.x - width_of(wait)) / 2, (area.min.y + area.max.y) / 2},
                 paint(theme().dim), wait);
  }
  draw.PopClipRect();
}

void StackPanel::zoom_height(const PlotArea& area, double factor) {
  const double share =
      static_cast<double>((area.max.y - ImGui::GetMousePos().y) / (area.max.y - area.min.y));
  const double at = bottom_share_ + share / zoom_;
  zoom_ = std::clamp(zoom_ / factor, 1.0, kMostZoom);
  bottom_share_ = std::clamp(at - share / zoom_, 0.0, 1 - 1 / zoom_);
}

void StackPanel::choose(const Model& model, Selection& selection, const Plot& plot, size_t index,
                        bool ctrl) {
  const PlotArea& area = areas_[index];
  const StackView& view = views_[index];
  const ImVec2 mouse = ImGui::GetMousePos();
  const double time = area.time(mouse.x) - plot.offset;
  const auto hit = view.at(area, mouse);
  uint32_t event = 0;
  const bool known =
      hit ? (event = hit->event, true)
          : plot.model->lanes[plot.lane].memory->event_at(absolute_ns(*plot.model, time), event);
  if (!plot.own) {
    if (known) selection.compare_with(model, {true, plot.lane, event, false});
    return;
  }
  if (ctrl) {
    if (known && plot.lane == selection.cursor.lane()) selection.compare_from(model, event);
    return;
  }
  selection.highlights.measure.reset();
  selection.highlights.measured.clear();
  if (hit) {
    selection.set_event(model, plot.lane, event);
  } else {
    selection.set_time(model, plot.lane, time);
  }
  if (!hit) return;
  const StackPicture& picture = *view.picture();
  if (const auto block = picture.block_at(picture.columns.bands[hit->band], event, hit->above)) {
    selection.choose_allocation(*block);
  }
}

void StackPanel::handle_mouse(const Model& model, Selection& selection, const Plot& plot,
                              size_t index) {
  const ImGuiIO& io = ImGui::GetIO();
  const PlotArea& area = areas_[index];
  TimeView& time = time_view(selection);
  const double at = area.time(io.MousePos.x);
  if (ImGui::IsItemHovered()) {
    if (!steps_) hover_time_ = at;
    const auto wheel = static_cast<double>(io.MouseWheel);
    if (io.MouseWheel != 0 && io.KeyCtrl) {
      zoom_height(area, std::pow(0.8, wheel));
    } else if (io.MouseWheel != 0) {
      zoom_view(time, axis(), at, std::pow(0.8, wheel));
    }
    if (io.MouseWheelH != 0) {
      pan_view(time, axis(), time.range(), -0.1 * static_cast<double>(io.MouseWheelH));
    }
  }
  if (ImGui::IsItemActivated()) {
    drag_ = io.KeyShift ? Drag::kMeasure : Drag::kPan;
    drag_from_ = at;
    drag_view_ = time.range();
    drag_bottom_ = bottom_share_;
    return;
  }
  if (ImGui::IsItemActive() && ImGui::IsMouseDragging(ImGuiMouseButton_Left, px(kClickPx))) {
    const ImVec2 by = ImGui::GetMouseDragDelta(0, 0);
    if (drag_ == Drag::kMeasure && plot.own) {
      selection.set_event(model, plot.lane, selection.cursor.event());
      selection.highlights.measured.clear();
      selection.highlights.measure = absolute_range(
          model, {std::min(drag_from_, at) - plot.offset, std::max(drag_from_, at) - plot.offset});
    } else if (drag_ == Drag::kPan) {
      pan_view(time, axis(), drag_view_, static_cast<double>(-by.x / (area.max.x - area.min.x)));
      const double up = static_cast<double>(by.y / (area.max.y - area.min.y)) / zoom_;
      bottom_share_ = std::clamp(drag_bottom_ + up, 0.0, 1 - 1 / zoom_);
    }
  }
  if (!ImGui::IsItemDeactivated()) return;
  const bool still = io.MouseDragMaxDistanceSqr[0] < px(kClickPx) * px(kClickPx);
  if (drag_ == Drag::kPan && still) {
    choose(model, selection, plot, index, io.KeyCtrl);
    clicked_at_ = io.MousePos;
  }
  drag_ = Drag::kNone;
}

void StackPanel::draw_plot(const Model& model, Selection& selection, const Plot& plot, size_t index,
                           ImVec2 size) {
  const ImVec2 at = ImGui::GetCursorScreenPos() + ImVec2(px(kGutterPx), 0);
  const ImVec2 min(std::round(at.x), std::round(at.y));
  PlotArea& area = areas_[index];
  area = {min, min + size, time_view(selection).range(), 1, axis()};
  ImGui::SetCursorScreenPos(min);
  ImGui::PushID(static_cast<int>(index));
  ImGui::InvisibleButton("##stack", size);
  ImGui::PopID();
  const bool hovered = ImGui::IsItemHovered();
  handle_mouse(model, selection, plot, index);
  area.view = time_view(selection).range();
  StackView& view = views_[index];
  view.update(wish_of(plot, selection, size), patient);
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  draw.AddRect(area.min, area.max, paint(theme().line));
  view.draw(area);
  draw_byte_axis(area, view);
  draw_marks(plot, area, view);
  const bool cursors_lane = plot.own && plot.lane == selection.cursor.lane();
  if (selection.highlights.allocation && cursors_lane) {
    view.outline(area, view.band_of(*selection.highlights.allocation), paint(theme().cursor),
                 px(2));
  }
  const float x = std::round(area.x(selection.cursor.time(model) + (steps_ ? plot.offset : 0)));
  draw.PushClipRect(area.min, area.max, true);
  draw.AddLine({x, area.min.y}, {x, area.max.y}, paint(theme().cursor, 210), px(1.2F));
  if (selection.comparison.reference() && !steps_) {
    const float there = std::round(area.x(selection.comparison.time(model)));
    draw_dashes(draw, {there, area.min.y}, {there, area.max.y}, paint(theme().compare), px(4),
                px(1.5F));
  }
  draw.PopClipRect();
  if (selection.highlights.measure && !steps_) {
    const VisibleRange range = since_start(model, *selection.highlights.measure);
    draw_measured(range, area, span_text(range.span()), px(4));
  }
  if (!hovered || drag_ != Drag::kNone) return;
  const auto hit = view.at(area, ImGui::GetMousePos());
  if (!hit) return;
  view.outline(area, hit->band, paint(theme().text, 220), px(1));
  // After a click the box would cover what the click shows.
  const ImVec2 moved = ImGui::GetMousePos() - clicked_at_;
  if (moved.x * moved.x + moved.y * moved.y < px(kClickPx) * px(kClickPx)) return;
  explain_band(*view.picture(), *hit, area.min, area.max);
}

// What was asked for and cannot be drawn.
void StackPanel::draw_notes(const Model& model, const Lane& lane) {
  if (by_ != options.by) {
    text_in_colour(theme().warning,
                   fmt::format("{} Bands are {} instead.",
                               why_no_stack_way(model, lane, options.by), stack_way_plural(by_)));
  }
  if (options.steps && !steps_) {
    text_in_colour(theme().warning, "The trace does not have two steps to compare.");
  }
}

void StackPanel::name_steps(const Model& model, const Lane& lane) {
  titled_ = pair_;
  titles_ = step_titles(model, lane, *pair_);
  const Steps& steps = model.steps_of(lane);
  const std::string how = how_steps_were_detected(steps);
  if (!how.empty()) titles_.ordinary += ", " + how;
  const auto first = peak_of_step(*lane.memory, steps, pair_->ordinary);
  const auto second = peak_of_step(*lane.memory, steps, pair_->unlike);
  peaks_.reset();
  if (first && second) {
    peaks_ = {{*first, *second}, {steps.name(pair_->ordinary), steps.name(pair_->unlike)}};
  }
}

std::optional<LegendPair> StackPanel::peaks_to_list(const Model& model, const Cursor& cursor,
                                                    const std::vector<Plot>& plots) const {
  const bool is_inside = std::any_of(plots.begin(), plots.end(), [&](const Plot& plot) {
    const double time = cursor.time(model) + plot.offset;
    return time >= 0 && time <= plot.end.value_or(0);
  });
  const StackPicture* picture = views_[0].picture();
  if (!steps_ || is_inside || picture == nullptr || picture->has_own_colours()) return {};
  return peaks_;
}

void StackPanel::draw_legend(const Model& model, Selection& selection,
                             const std::vector<Plot>& plots) {
  const Lane& lane = model.lanes[selection.cursor.lane()];
  const std::optional<LegendPair> peaks = peaks_to_list(model, selection.cursor, plots);
  if (!peaks) {
    const MemoryTotals totals = lane.memory->totals_after(selection.cursor.event());
    text_dim(by_ == StackBy::kSegment ? fmt::format("reserved {}", size_text(totals.reserved))
                                      : fmt::format("allocated {}", size_text(totals.allocated)));
    if (steps_) text_dim("at the cursor");
  }
  if (selection.highlights.measure) {
    text_dim(selection.highlights.measured.empty() ? "in the measured time"
                                                   : "in " + selection.highlights.measured);
    stretch_.draw(model, selection.cursor.lane(), *selection.highlights.measure, px(90));
    ImGui::Separator();
    if (!peaks) text_dim("at the cursor");
  }
  if (peaks) text_dim("at the peak of each step");
  legend.draw(model, selection.cursor, views_[0].shared_picture(), patient, peaks);
}

void StackPanel::draw(const Model& model, Selection& selection) {
  frame_ = ImGui::GetFrameCount();
  hover_time_.reset();
  if (model.lanes.empty()) {
    text_wrapped("This trace has no allocator events, so there is nothing to stack.");
    return;
  }
  if (pressed(Command::kWhole)) show_whole_height();
  const Lane& lane = model.lanes[selection.cursor.lane()];
  const StackBy before = by_;
  by_ = nearest_stack_way(model, lane, options.by);
  draw_stack_toolbar(model, selection, options, by_, pair_, search);
  if (by_ != before) legend.show_all();
  const std::vector<Plot> plots = plots_of(model, selection);
  draw_notes(model, lane);
  if (lane.memory->event_count() == 0) {
    text_dim("No allocator events were recorded on this device.");
    return;
  }
  axis_.reset();
  // By event, a part with hardly any event takes hardly any space.
  if (options.by_event && selection.view.leaves_out_rest()) selection.view.fit();
  if (options.by_event && !steps_ && lane.memory->event_count() > 1) {
    axis_.emplace(*lane.memory, model.trace.start_ns);
  }
  const Curve curve = by_ == StackBy::kSegment ? Curve::kReserved : Curve::kAllocated;
  const bool fit = options.fit || steps_;
  top_bytes_ = 0;
  for (const Plot& plot : plots) {
    const Lane& of = plot.model->lanes[plot.lane];
    const double highest =
        fit ? highest_in(*plot.model, of, curve, time_view(selection).range(), plot.offset)
            : highest_of(of, curve);
    top_bytes_ = std::max(top_bytes_, highest * kAbove);
  }
  // The rest of a picture in which groups are hidden is scaled when it is made.
  if (!legend.hidden().empty() && plots.size() == 1) top_bytes_ = 0;

  const ImVec2 room = ImGui::GetContentRegionAvail();
  const bool has_legend = room.x > px(480);
  const float legend_width =
      has_legend ? std::clamp(room.x * (steps_ ? 0.3F : 0.24F), px(150), px(320)) : 0;
  const float width = std::floor(
      std::max(room.x - px(kGutterPx) - legend_width - (has_legend ? px(12) : 0), px(40)));
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(0, px(kGapPx)));
  ImGui::BeginGroup();
  const VisibleRange view = time_view(selection).range();
  const std::vector<Tick> ticks =
      axis_ ? event_ticks(*axis_, view, width) : axis_ticks(view, width);
  const ImVec2 at = ImGui::GetCursorScreenPos() + ImVec2(px(kGutterPx), 0);
  ImGui::Dummy({px(kGutterPx) + width, px(kAxisPx) - px(kGapPx)});
  const PlotArea strip{at, at + ImVec2(width, px(kAxisPx)), view, 1, axis()};
  if (steps_) {
    draw_tick_labels(ticks, strip, std::nullopt);
  } else {
    draw_time_axis(model, selection.cursor, ticks, strip);
  }
  const auto count = static_cast<float>(plots.size());
  const float height = std::floor((room.y - px(kAxisPx) - px(kGapPx) * count) / count);
  for (size_t i = 0; i < plots.size(); ++i) {
    draw_plot(model, selection, plots[i], i, {width, std::max(height, px(30))});
  }
  ImGui::EndGroup();
  ImGui::PopStyleVar();
  if (!has_legend) return;
  ImGui::SameLine(0, px(12));
  ImGui::BeginChild("##legend", {0, 0});
  draw_legend(model, selection, plots);
  ImGui::EndChild();
}

}  // namespace tidemark::view
