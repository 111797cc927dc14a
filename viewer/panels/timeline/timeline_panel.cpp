#include "viewer/panels/timeline/timeline_panel.h"

#include <fmt/format.h>
#include <implot.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "analysis/wording.h"
#include "viewer/model/flame/stretch.h"
#include "viewer/model/owner_names.h"
#include "viewer/panels/timeline/lane_scale.h"
#include "viewer/panels/timeline/marks.h"
#include "viewer/panels/timeline/steps.h"
#include "viewer/panels/timeline/time_axis.h"
#include "viewer/widgets/drawing.h"
#include "viewer/widgets/key_table.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr float kMinimapPx = 38;
constexpr float kLeastLanePx = 84;
constexpr float kGapPx = 6;  // between lanes

}  // namespace

// A switch is shown only where the trace has data for it.
void TimelinePanel::draw_switches(const Model& model, const Selection& selection) {
  bool first = true;
  const auto box = [&](const char* name, bool& on, Rgb colour, const char* meaning) {
    if (!first) flow(width_of(name) + px(34));
    first = false;
    ImGui::PushStyleColor(ImGuiCol_CheckMark, paint(colour));
    ImGui::PushStyleColor(ImGuiCol_Text, paint(colour));
    ImGui::Checkbox(name, &on);
    ImGui::PopStyleColor(2);
    explain(meaning);
  };
  const auto any = [&](const auto& has) {
    return std::any_of(model.lanes.begin(), model.lanes.end(), has);
  };
  if (any([](const Lane& lane) { return !lane.of_driver; })) {
    box("allocated", options.shown[0], theme().allocated,
        "In use by tensors: the sizes of their blocks.");
    if (any([](const Lane& lane) { return !lane.of_driver && lane.requests_known; })) {
      box("requested", options.shown[1], theme().requested,
          "What the program requested, before rounding up to block sizes.");
    }
    box("reserved", options.shown[2], theme().reserved,
        "What the allocator reserved on the card: allocated plus cached for later.");
  } else if (!model.lanes.empty()) {
    box("held by this process", options.shown[0], theme().allocated,
        "What the driver allocated for this process on the card. No framework was recorded.");
  }
  if (any([](const Lane& lane) { return !lane.used.empty(); })) {
    box("card used", options.used, theme().used,
        "Used on the card by all processes according to NVML, including contexts and code.");
  }
  if (any([](const Lane& lane) { return !lane.owners.empty(); })) {
    box("owners", options.owners, theme().text,
        "A curve for each library that allocates directly from the driver: NCCL, cuBLAS ...");
  }
  if (any([&](const Lane& lane) { return model.steps_of(lane).count() > 0; })) {
    std::string how;  // of the first lane that does not know them from marks
    for (const Lane& lane : model.lanes) {
      if (how.empty()) how = how_steps_were_detected(model.steps_of(lane));
    }
    const std::string meaning =
        "Where the program's iterations begin, and those unlike the others: the first step, "
        "validation, saving." +
        (how.empty() ? "" : " They are " + how + ".");
    box(how.empty() ? "steps" : "steps (detected)", options.steps, theme().text, meaning.c_str());
  }
  const auto has_rows = [](const Activity& a) { return !a.rows.empty(); };
  if (std::any_of(model.activity.begin(), model.activity.end(), has_rows)) {
    box("activity", options.activity, theme().text,
        "Kernels by stream and NCCL operations of the selected rank.");
    const auto many = [](const Activity& a) { return a.rows.size() > 5; };
    if (options.activity && std::any_of(model.activity.begin(), model.activity.end(), many)) {
      box("all streams", options.all_streams, theme().text, "All streams, not only the busiest.");
    }
  }
  const bool compared = selection.cursor.lane() < model.lanes.size() &&
                        selection.overlay_of(model, selection.cursor.lane()).has_value();
  if (compared) {
    box("overlay", options.overlay, theme().compare,
        "The curve of the compared rank or of the second trace.");
  }
  box("stacked", options.stacked, theme().text,
      "What the selected rank has allocated as bands: categories, or lines of code. The Stack "
      "panel "
      "shows more of it.");
  box("by event", options.by_event, theme().text,
      "Number the events of the selected rank on the axis instead of the time: busy parts get "
      "more space. Kernels are not shown then.");
  if (model.lanes.size() > 1) {
    box("own scale", options.own_scale, theme().text,
        "Scale each plot to its own highest curve. Otherwise all have the same scale, so that "
        "their heights can be compared.");
  }
  if (any([](const Lane& lane) { return lane.total_bytes != 0; })) {
    box("card limit", options.to_limit, theme().limit,
        "Scale the height to the memory of the card.");
  }
}

void TimelinePanel::draw_toolbar(const Model& model, Selection& selection) {
  draw_switches(model, selection);
  flow(px(46));
  if (ImGui::Button("Fit")) selection.view.fit();
  explain("Show the whole run (F).");
  flow(px(56));
  if (ImGui::Button("Peak")) selection.go_to_peak(model);
  explain("Go to the allocated peak (P).");
  if (!model.ooms.empty()) {
    flow(px(110));
    if (ImGui::Button(fmt::format("Next OOM ({})###oom", model.ooms.size()).c_str())) {
      selection.go_to_oom(model, 1);
    }
    explain("Go to the next out-of-memory error (N) or the previous one (B).");
  }
  search.draw(selection.highlights.search);
  note_left_out(selection.view);
}

void TimelinePanel::draw_measure(const Model& model, const Selection& selection,
                                 const PlotArea& area) {
  if (!selection.highlights.measure) return;
  const VisibleRange range = since_start(model, *selection.highlights.measure);
  const Lane& lane = model.lanes[selection.cursor.lane()];
  std::string label = span_text(range.span());
  const StretchEvents events = events_of(*lane.memory, *selection.highlights.measure);
  if (events.last > 0) {
    const CurveValues from =
        events.first == 0 ? CurveValues{} : lane.curves.values_after(events.first - 1);
    const CurveValues to = lane.curves.values_after(events.last - 1);
    // The level that it begins with counts, too, unless it begins with an event.
    const bool begins_with_event =
        events.count() != 0 &&
        lane.memory->time_ns[events.first] == selection.highlights.measure->begin_ns;
    const uint32_t carried = begins_with_event || events.first == 0 ? 0 : 1;
    const Extremes within = lane.curves.extremes(events.first - carried, events.last);
    const bool fell = to[0] < from[0];
    label += fmt::format("   {} by {}   peak {}   {}", fell ? "fell" : "grew",
                         size_text(fell ? from[0] - to[0] : to[0] - from[0]),
                         size_text(within.max[0]), counted(events.count(), "event"));
  }
  draw_measured(range, area, label, px(24));
}

void TimelinePanel::draw_hover(const Model& model, uint32_t lane, const PlotArea& area,
                               const LaneDrawing& drawing) {
  const float x = ImGui::GetMousePos().x;
  ImGui::GetWindowDrawList()->AddLine({x, area.min.y}, {x, area.max.y}, paint(theme().dim, 120));
  const TimelineColumns& columns = drawing.own.columns();
  const uint32_t count = columns.count();
  if (count == 0 || !ImGui::BeginTooltip()) return;
  const double share = static_cast<double>((x - area.min.x) / (area.max.x - area.min.x));
  const auto i =
      static_cast<uint32_t>(std::clamp(share * count, 0.0, static_cast<double>(count - 1)));
  uint32_t hovered = 0;
  const AllocationHistory& memory = *model.lanes[lane].memory;
  const bool known = memory.event_at(absolute_ns(model, area.time(x)), hovered) &&
                     hovered + 1 < memory.event_count();
  text(model.lanes[lane].name + "  at " + instant_text(area.time(x), area.view.span()) +
       (known ? model.comma_step(model.lanes[lane], hovered) : ""));
  if (i < columns.first_known) {
    text_dim("before the first recorded allocation");
    if (const uint64_t used = model.lanes[lane].card_used_at(absolute_ns(model, area.time(x)));
        used != 0) {
      text(fmt::format("card used  {}", size_text(used)));
    }
    ImGui::EndTooltip();
    return;
  }
  const auto line = [](Rgb colour, std::string_view name, uint64_t least, uint64_t most) {
    swatch(colour);
    const auto [low, high] = size_texts(least, most);
    text(least == most ? fmt::format("{}  {}", name, high)
                       : fmt::format("{}  {} to {}", name, low, high));
  };
  const Lane& l = model.lanes[lane];
  for (const Curve c : curves_of(l)) {
    const Column& v = columns.curves[static_cast<size_t>(c)][i];
    line(curve_colour(c), curve_name(c, l), v.min, v.max);
    const Column& allocated = columns.curves[static_cast<size_t>(Curve::kAllocated)][i];
    if (c == Curve::kRequested && v.max > allocated.max) {
      text_dim("requested includes what is pending free");
    }
  }
  const float width = (area.max.x - area.min.x) / static_cast<float>(count);
  const int64_t from = absolute_ns(model, area.time(area.min.x + width * static_cast<float>(i)));
  const int64_t to = absolute_ns(model, area.time(area.min.x + width * static_cast<float>(i + 1)));
  if (const StepCurve::Range r = l.used.within(from, to); options.used && r.known()) {
    // Of one value: the one that the cursor would have here.
    const uint64_t here = l.card_used_at(absolute_ns(model, area.time(x)));
    const bool one = r.min == r.max && here != 0;
    line(theme().used, "card used", one ? here : r.min, one ? here : r.max);
  }
  for (const OwnerCurve& owner : l.owners) {
    const StepCurve::Range r = owner.bytes.within(from, to);
    if (!options.owners || !r.known()) continue;
    line(owner_colour(owner.name), owner_title(owner.name), r.min, r.max);
  }
  if (const auto& over = drawing.overlay; over && i < drawing.laid_over.columns().count() &&
                                          i >= drawing.laid_over.columns().first_known) {
    const Column& v = drawing.laid_over.columns().curves[0][i];
    line(theme().compare, overlay_name(model, *over), v.min, v.max);
  }
  const uint32_t events = columns.edges[i + 1] - columns.edges[i];
  if (events > 0) text_dim(counted(events, "event") + " in this pixel");
  text_dim("click: move the cursor   shift-drag: measure   wheel: zoom");
  ImGui::EndTooltip();
}

bool TimelinePanel::handle_mouse(const Model& model, Selection& selection, uint32_t lane,
                                 const PlotArea& area) {
  const ImGuiIO& io = ImGui::GetIO();
  const double at = area.time(io.MousePos.x);
  if (ImGui::IsItemHovered()) {
    hover_time_ = at;
    if (io.MouseWheel != 0 && !io.KeyCtrl) {
      zoom_view(selection.view, axis(), at, std::pow(0.8, static_cast<double>(io.MouseWheel)));
    }
    if (io.MouseWheelH != 0) {
      pan_view(selection.view, axis(), selection.view.range(),
               -0.1 * static_cast<double>(io.MouseWheelH));
    }
  }
  if (ImGui::IsItemActivated()) {
    drag_ = io.KeyShift ? Drag::kMeasure : Drag::kPan;
    drag_from_ = at;
    drag_view_ = selection.view.range();
    if (drag_ == Drag::kMeasure) selection.set_event(model, lane, selection.cursor.event());
    return false;
  }
  const bool moved = ImGui::IsMouseDragging(ImGuiMouseButton_Left, px(kClickPx));
  if (ImGui::IsItemActive() && moved) {
    if (drag_ == Drag::kMeasure) {
      selection.highlights.measured.clear();
      selection.highlights.measure =
          absolute_range(model, {std::min(drag_from_, at), std::max(drag_from_, at)});
    } else if (drag_ == Drag::kPan) {
      const float share = ImGui::GetMouseDragDelta(0, 0).x / (area.max.x - area.min.x);
      pan_view(selection.view, axis(), drag_view_, static_cast<double>(-share));
    }
  }
  if (!ImGui::IsItemDeactivated()) return false;
  const bool clicked =
      drag_ == Drag::kPan && io.MouseDragMaxDistanceSqr[0] < px(kClickPx) * px(kClickPx);
  if (clicked && io.KeyCtrl && lane != selection.cursor.lane()) {
    selection.compare_with(model, {false, lane, 0, true});
  } else if (clicked) {
    selection.set_time(model, lane, at);
    selection.highlights.measure.reset();
    selection.highlights.measured.clear();
  }
  drag_ = Drag::kNone;
  return clicked;
}

TimelineOptions TimelinePanel::shown_options() const {
  TimelineOptions shown = options;
  if (options.by_event) shown.activity = false;
  return shown;
}

float TimelinePanel::lane_height(const Model& model, const Cursor& cursor, float room,
                                 bool& scrolls) const {
  float marks = 0;
  for (uint32_t p = 0; p < model.activity.size(); ++p) {
    const float rows = activity_rows(model, cursor, p, shown_options()).height();
    if (rows > 0) marks += rows + px(kGapPx);
  }
  for (uint32_t p = 0; p < model.marks.size(); ++p) {
    const float rows = mark_rows_height(model, cursor, p);
    if (rows > 0) marks += rows + px(kGapPx);
  }
  const auto count = static_cast<float>(model.lanes.size());
  const float share = (room - marks) / std::max(count, 1.0F) - px(kGapPx);
  scrolls = share < px(kLeastLanePx);
  return std::floor(std::max(share, px(kLeastLanePx)));
}

void TimelinePanel::draw_lanes(const Model& model, Selection& selection, ImVec2 size,
                               float height) {
  const float gap = px(kGapPx);
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(0, gap));
  ImGui::BeginChild("##lanes", size, 0, ImGuiWindowFlags_NoScrollWithMouse);
  // Ctrl and the wheel scroll through the lanes; the wheel alone zooms in time.
  if (ImGui::IsWindowHovered() && ImGui::GetIO().KeyCtrl && ImGui::GetIO().MouseWheel != 0) {
    ImGui::SetScrollY(ImGui::GetScrollY() - ImGui::GetIO().MouseWheel * height);
  }
  lanes_.resize(model.lanes.size());
  // A list knows how far it can scroll only after it was drawn once.
  if (std::exchange(last_lane_, selection.cursor.lane()) != selection.cursor.lane())
    scroll_frames_ = 3;
  const bool lane_moved = scroll_frames_ > 0;
  if (lane_moved) --scroll_frames_;
  const double top = options.own_scale ? 0 : shared_top(model, selection, options, height);
  for (uint32_t i = 0; i < model.lanes.size(); ++i) {
    const ImVec2 at = ImGui::GetCursorScreenPos() + ImVec2(px(kGutterPx), 0);
    const ImVec2 plot(ImGui::GetContentRegionAvail().x - px(kGutterPx), height);
    ImGui::SetCursorScreenPos(at);
    ImGui::PushID(static_cast<int>(i));
    ImGui::InvisibleButton("##lane", {std::max(plot.x, 1.0F), plot.y});
    ImGui::PopID();
    if (lane_moved && i == selection.cursor.lane() && !ImGui::IsItemVisible())
      ImGui::SetScrollHereY(0.3F);
    PlotArea area{at, at + plot, selection.view.range(), 1, axis()};
    if (ImGui::IsItemVisible() && plot.x > px(40)) {
      const bool hovered = ImGui::IsItemHovered();
      const bool clicked = handle_mouse(model, selection, i, area);
      TimelineOptions shown = options;
      const bool stacked = options.stacked && i == selection.cursor.lane();
      if (stacked) {
        draw_stack(model, selection, i, top, at, plot);
        shown.shown = {false, false, options.shown[2]};
        ImPlot::PushStyleColor(ImPlotCol_PlotBg, ImVec4(0, 0, 0, 0));
      }
      ImGui::SetCursorScreenPos(at);
      area = draw_lane(model, selection, i, lanes_[i], shown, ticks_, top, axis(), plot);
      if (stacked) ImPlot::PopStyleColor();
      if (const ImVec2 mouse = ImGui::GetMousePos(); clicked && mouse.y > area.max.y) {
        measure_step(model, model.lanes[i], area.time(mouse.x), selection);
      }
      draw_byte_labels(area);
      if (i == selection.cursor.lane()) draw_measure(model, selection, area);
      if (hovered && drag_ == Drag::kNone) draw_hover(model, i, area, lanes_[i]);
    }
    const uint32_t process = model.lanes[i].process;
    const bool last_of_process =
        i + 1 == model.lanes.size() || model.lanes[i + 1].process != process;
    if (last_of_process) draw_below(model, selection, i, plot.x);
  }
  ImGui::EndChild();
  ImGui::PopStyleVar();
}

void TimelinePanel::use_stack(std::shared_ptr<StackIndexes> indexes,
                              const std::function<void()>& wake) {
  stack_ = std::make_unique<StackView>(std::move(indexes));
  stack_->set_wake(wake);
  legend_ = std::make_unique<StackLegend>();
  legend_->set_wake(wake);
}

void TimelinePanel::draw_stack(const Model& model, const Selection& selection, uint32_t index,
                               double top_bytes, ImVec2 at, ImVec2 size) {
  const Lane& lane = model.lanes[index];
  if (stack_ == nullptr || lane.memory->event_count() == 0) return;
  const float plot = size.y - steps_strip_px(model, lane, options, size.y);
  const auto overlay = options.overlay ? selection.overlay_of(model, index) : std::nullopt;
  const ImVec2 min(std::round(at.x), std::round(at.y));
  const PlotArea area{min, min + ImVec2(std::floor(size.x), std::floor(plot)),
                      selection.view.range(), 1, axis()};
  StackWish wish;
  wish.model = &model;
  wish.lane = index;
  wish.by = has_stack_way(model, lane, StackBy::kCategory) ? StackBy::kCategory
            : has_stack_way(model, lane, StackBy::kOwner)  ? StackBy::kOwner
                                                           : StackBy::kLine;
  wish.categories_known = model.categories_known;
  wish.hidden = legend_->hidden();
  wish.view = area.view;
  if (axis() != nullptr) {
    wish.axis = axis()->memory();
    wish.axis_start_ns = model.trace.start_ns;
  }
  wish.width_px = static_cast<int>(area.max.x - area.min.x);
  wish.height_px = static_cast<int>(area.max.y - area.min.y);
  wish.top_bytes = top_bytes > 0 ? top_bytes : lane_top(model, lane, options, overlay, plot);
  wish.search = folded(selection.highlights.search);
  wish.dark = theme().dark;
  stack_->update(wish, patient);
  stack_->draw(area);
}

void TimelinePanel::draw_below(const Model& model, Selection& selection, uint32_t lane,
                               float width) {
  const uint32_t process = model.lanes[lane].process;
  // Clicks on empty places move the cursor in the selected lane, if it belongs to this process.
  if (model.lanes[selection.cursor.lane()].process == process) lane = selection.cursor.lane();
  const auto strip = [&](const char* id, float height) {
    const ImVec2 at = ImGui::GetCursorScreenPos() + ImVec2(px(kGutterPx), 0);
    ImGui::SetCursorScreenPos(at);
    ImGui::PushID(static_cast<int>(process));
    ImGui::InvisibleButton(id, {std::max(width, 1.0F), height});
    ImGui::PopID();
    return PlotArea{at, at + ImVec2(width, height), selection.view.range(), 1, axis()};
  };
  const auto cursor = [&](const PlotArea& area) {
    const float x = std::round(area.x(selection.cursor.time(model)));
    if (x < area.min.x || x > area.max.x) return;
    ImGui::GetWindowDrawList()->AddLine({x, area.min.y}, {x, area.max.y},
                                        paint(theme().cursor, 210), px(1.2F));
  };
  const ActivityRows rows = activity_rows(model, selection.cursor, process, shown_options());
  if (const float height = rows.height(); height > 0) {
    const PlotArea area = strip("##activity", height);
    if (ImGui::IsItemVisible()) {
      const bool hovered = ImGui::IsItemHovered() && drag_ == Drag::kNone;
      const bool clicked = handle_mouse(model, selection, lane, area);
      const auto under =
          draw_activity(model, selection.highlights, process, rows, area, hovered || clicked);
      cursor(area);
      if (clicked && under) selection.choose_activity(model, *under);
    }
  }
  if (const float height = mark_rows_height(model, selection.cursor, process); height > 0) {
    const PlotArea area = strip("##marks", height);
    if (ImGui::IsItemVisible()) {
      const bool clicked = handle_mouse(model, selection, lane, area);
      const MarkRange* under = draw_marks(model, selection.highlights.search, process, area);
      if (clicked && under != nullptr) selection.choose_range(model, lane, *under);
      cursor(area);
    }
  }
}

static bool is_of_snapshots(const TraceModel& trace) {
  return !trace.processes.empty() &&
         std::all_of(trace.processes.begin(), trace.processes.end(),
                     [](const ProcessModel& p) { return p.info.source == Source::kTorchSnapshot; });
}

void TimelinePanel::draw(const Model& model, Selection& selection) {
  if (model.lanes.empty()) {
    text_wrapped(
        is_of_snapshots(model.trace)
            ? "This snapshot has no blocks and no history, so there is no curve to draw. PyTorch "
              "writes both if torch.cuda.memory._record_memory_history() is called first."
            : "This trace has no allocator events, so there is no curve to draw. Run tidemark "
              "doctor to see what the recording was missing.");
    return;
  }
  draw_toolbar(model, selection);
  hover_time_ = selection.view.range().begin - 1;
  const ImVec2 whole = ImGui::GetContentRegionAvail();
  const bool has_legend = options.stacked && stack_ != nullptr && whole.x > px(480);
  const float legend_width = has_legend ? std::clamp(whole.x * 0.2F, px(150), px(280)) : 0;
  const ImVec2 room(whole.x - legend_width - (has_legend ? px(12) : 0), whole.y);
  const ImVec2 corner = ImGui::GetCursorScreenPos();
  const float gutter = px(kGutterPx);
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(0, px(2)));
  const bool minimap = room.y > px(170);
  const float used = px(kAxisPx) + px(4) + (minimap ? px(kMinimapPx) + px(2) : 0);
  const float lanes_height = std::max(room.y - used, px(40));
  bool scrolls = false;
  const float height = lane_height(model, selection.cursor, lanes_height, scrolls);
  // The axis ends where the curves end.
  const float bar = scrolls ? ImGui::GetStyle().ScrollbarSize : 0;
  const float width = std::max(room.x - gutter - bar, px(40));
  const Lane& lane = model.lanes[std::min<size_t>(selection.cursor.lane(), model.lanes.size() - 1)];
  axis_.reset();
  if (options.by_event && lane.memory->event_count() > 1) {
    // A part with hardly any event takes hardly any space.
    if (selection.view.leaves_out_rest()) selection.view.fit();
    axis_.emplace(*lane.memory, model.trace.start_ns);
  }
  if (minimap) {
    draw_whole_run(model, selection, {gutter - px(6), px(kMinimapPx)});
    ImGui::SetCursorPosX(ImGui::GetCursorPosX() + gutter);
    minimap_.draw(model, selection, options.overlay, axis(), {width, px(kMinimapPx)});
  }
  ticks_ = axis_ ? event_ticks(*axis_, selection.view.range(), width)
                 : axis_ticks(selection.view.range(), width);
  const ImVec2 at = ImGui::GetCursorScreenPos() + ImVec2(gutter, 0);
  ImGui::Dummy({room.x, px(kAxisPx)});
  draw_time_axis(model, selection.cursor, ticks_,
                 {at, at + ImVec2(width, px(kAxisPx)), selection.view.range(), 1, axis()});
  draw_lanes(model, selection, {room.x, lanes_height}, height);
  ImGui::PopStyleVar();
  if (has_legend) {
    ImGui::SetCursorScreenPos(corner + ImVec2(whole.x - legend_width, 0));
    ImGui::BeginChild("##legend", {legend_width, whole.y});
    text_dim("allocated at the cursor");
    legend_->draw(model, selection.cursor, stack_->shared_picture(), patient);
    ImGui::EndChild();
  }
  refine_curves();
}

void TimelinePanel::refine_curves() {
  constexpr auto kBudget = std::chrono::milliseconds(2);
  const auto deadline = std::chrono::steady_clock::now() + kBudget;
  unfinished_ = false;
  const auto refine = [&](LaneCurves& curves) {
    const std::chrono::nanoseconds left = deadline - std::chrono::steady_clock::now();
    const int64_t budget_ns = patient ? -1 : std::max<int64_t>(left.count(), 0);
    if (!curves.refine(budget_ns)) unfinished_ = true;
  };
  minimap_.each(refine);
  for (LaneDrawing& drawing : lanes_) {
    refine(drawing.own);
    refine(drawing.laid_over);
  }
}

void TimelinePanel::draw_preview(const Preview& preview) {
  text_dim("Preview while the trace is being read: requested bytes, approximate.");
  const auto span = static_cast<double>(std::max<int64_t>(preview.end_ns - preview.start_ns, 1));
  double top = 1;
  for (const PreviewCurve& c : preview.curves) {
    for (const double y : c.high) top = std::max(top, y);
  }
  if (!ImPlot::BeginPlot("##preview", ImGui::GetContentRegionAvail(),
                         ImPlotFlags_CanvasOnly | ImPlotFlags_NoInputs)) {
    return;
  }
  ImPlot::SetupAxes(nullptr, nullptr, ImPlotAxisFlags_NoDecorations, ImPlotAxisFlags_NoDecorations);
  ImPlot::SetupAxesLimits(0, span, 0, top * 1.1, ImPlotCond_Always);
  for (size_t i = 0; i < preview.curves.size(); ++i) {
    const PreviewCurve& c = preview.curves[i];
    ImPlot::SetNextFillStyle(vec(stack_colour(static_cast<uint32_t>(i) + 1)), 0.35F);
    const std::string id = fmt::format("{}##{}", c.name, i);
    ImPlot::PlotShaded(id.c_str(), c.time_ns.data(), c.high.data(), static_cast<int>(c.high.size()),
                       0.0);
  }
  ImPlot::EndPlot();
}

void TimelinePanel::handle_keys(const Model& model, Selection& selection,
                                std::optional<double> hovered) {
  if (!hovered && hover_time_ >= selection.view.range().begin) hovered = hover_time_;
  const double centre =
      hovered ? *hovered : selection.view.range().begin + selection.view.range().span() / 2;
  const VisibleRange view = selection.view.range();
  if (pressed(Command::kZoomIn)) zoom_view(selection.view, axis(), centre, 0.7);
  if (pressed(Command::kZoomOut)) zoom_view(selection.view, axis(), centre, 1 / 0.7);
  if (pressed(Command::kLeft)) pan_view(selection.view, axis(), view, -0.15);
  if (pressed(Command::kRight)) pan_view(selection.view, axis(), view, 0.15);
  if (pressed(Command::kWhole)) selection.view.fit();
  if (pressed(Command::kPeak)) selection.go_to_peak(model);
  if (pressed(Command::kNextOom)) selection.go_to_oom(model, 1);
  if (pressed(Command::kPreviousOom)) selection.go_to_oom(model, -1);
  if (pressed(Command::kCompare)) selection.toggle_compare(model);
  if (pressed(Command::kZoomToMeasure) && selection.highlights.measure) {
    const VisibleRange range = since_start(model, *selection.highlights.measure);
    selection.view.show(range.begin, range.end);
  }
  if (pressed(Command::kEventBack)) selection.step_events(model, -1);
  if (pressed(Command::kEventOn)) selection.step_events(model, 1);
  if (pressed(Command::kEventsBack)) selection.step_events(model, -100);
  if (pressed(Command::kEventsOn)) selection.step_events(model, 100);
  if (pressed(Command::kClear)) selection.clear_highlights(model);
}

}  // namespace tidemark::view
