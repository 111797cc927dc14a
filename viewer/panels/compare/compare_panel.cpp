#include "viewer/panels/compare/compare_panel.h"

#include <fmt/format.h>
#include <implot.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "analysis/wording.h"
#include "viewer/widgets/drawing.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/table.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr int64_t kBudgetNs = 2'000'000;  // per frame, for what is left of a curve
constexpr float kNamePx = 150;            // most for the name of a column

// With the name of its trace if there are two.
std::string lane_label(const Model& of, const Model* other, uint32_t lane) {
  return (other != nullptr ? name_beside(of, *other) + ": " : "") + of.lanes[lane].name;
}

// Short names for what is at the cursor and for what it is compared with.
std::pair<std::string, std::string> side_names(const Model& model, const Selection& selection) {
  const Reference& reference = *selection.comparison.reference();
  const uint32_t lane = selection.cursor.lane();
  if (reference.other) {
    const Model& other = *selection.comparison.other();
    return {name_beside(model, other), name_beside(other, model)};
  }
  if (reference.lane == lane) return {"at the cursor", "before"};
  return {model.lanes[lane].name, model.lanes[reference.lane].name};
}

Rgb change_ink(int64_t change) {
  return change > 0 ? theme().reserved : change < 0 ? theme().allocated : theme().dim;
}

}  // namespace

void ComparePanel::draw_lane_choice(const Model& model, Selection& selection) {
  const Comparison& comparison = selection.comparison;
  const std::optional<Reference>& reference = comparison.reference();
  const Model* const other = comparison.other().get();
  const auto label = [&](bool of_other, uint32_t lane) {
    return of_other ? lane_label(*other, &model, lane) : lane_label(model, other, lane);
  };
  const std::string now =
      reference ? label(reference->other, reference->lane) : "choose a rank or a trace";
  ImGui::SetNextItemWidth(std::min(px(300), ImGui::GetContentRegionAvail().x));
  if (!ImGui::BeginCombo("##against", fitted(now, px(260)).c_str())) return;
  const auto list = [&](const Model& m, bool of_other) {
    ImGuiListClipper clipper;
    clipper.Begin(static_cast<int>(m.lanes.size()));
    while (clipper.Step()) {
      for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
        const auto lane = static_cast<uint32_t>(i);
        ImGui::PushID(i + (of_other ? 1 << 20 : 0));
        if (ImGui::Selectable(label(of_other, lane).c_str())) {
          const bool follows = reference ? reference->follows : true;
          const uint32_t peak = m.lanes[lane].memory->allocated_peak.event;
          selection.compare_with(model, {of_other, lane, peak, follows});
        }
        ImGui::PopID();
      }
    }
  };
  list(model, false);
  if (other != nullptr) list(*other, true);
  ImGui::EndCombo();
}

void ComparePanel::draw_instant_choice(const Model& model, Selection& selection) {
  if (!selection.comparison.reference()) return;
  Reference wanted = *selection.comparison.reference();
  flow(px(110));
  if (ImGui::RadioButton("same time", wanted.follows)) {
    wanted.follows = true;
    selection.compare_with(model, wanted);
  }
  explain("Compare at the cursor's time, and follow the cursor.");
  const Model& there = selection.comparison.model_of_reference(model);
  const uint32_t peak = there.lanes[wanted.lane].memory->allocated_peak.event;
  flow(px(90));
  if (ImGui::RadioButton("its peak", !wanted.follows && wanted.event == peak)) {
    wanted.follows = false;
    wanted.event = peak;
    selection.compare_with(model, wanted);
  }
  explain("Compare with the peak of the other one.");
}

void ComparePanel::draw_choice(const Model& model, Selection& selection) {
  const std::string mine = fmt::format(
      "{} at {}", lane_label(model, selection.comparison.other().get(), selection.cursor.lane()),
      instant_text(selection.cursor.time(model), model.span_ns()));
  ImGui::AlignTextToFramePadding();
  text(fitted(mine + "  against", ImGui::GetContentRegionAvail().x));
  flow(px(310));
  draw_lane_choice(model, selection);
  draw_instant_choice(model, selection);
  flow(px(110));
  if (selection.comparison.other() == nullptr) {
    if (ImGui::Button("Add a trace...")) open_wanted = true;
    explain("Open a second trace to compare with.");
    return;
  }
  bool by_clock = selection.comparison.by_clock();
  if (ImGui::Checkbox("by the clock", &by_clock)) selection.place_other_by_clock(model, by_clock);
  explain("Align the two traces by their clocks. Otherwise both start at 0.");
  flow(px(170));
  if (ImGui::Button("Close the second trace")) selection.set_other(model, nullptr);
}

void ComparePanel::fill(const Model& model, const Lane& lane, const VisibleRange& view,
                        double offset, uint32_t columns, Points& out) const {
  const TimeWindow window{model.trace.start_ns, view.begin - offset, view.end - offset};
  const std::shared_ptr<const Model> of = model.weak_from_this().lock();
  const bool same = of != nullptr && of == out.model.lock() && out.offset == offset &&
                    out.lane == &lane && out.columns == columns && out.value == value_ &&
                    out.window.origin_ns == window.origin_ns && out.window.begin == window.begin &&
                    out.window.end == window.end;
  if (!same) {
    out.model = of;
    out.offset = offset;
    out.lane = &lane;
    out.window = window;
    out.columns = columns;
    out.value = value_;
    out.work.begin(*lane.memory, lane.curves, window, columns, patient);
  } else if (!out.work.work(kBudgetNs)) {
    return;
  }
  curve_points(*lane.memory, out.work.columns(), value_, window, model.end_of(lane), out.xs,
               out.ys);
  for (double& x : out.xs) x += offset;
}

void ComparePanel::draw_legend(const Model& model, const Selection& selection,
                               const PlotArea& area) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const ImVec2 at = area.min + ImVec2(px(8), px(4));
  const float line = ImGui::GetTextLineHeight() + px(2);
  const auto put = [&](float y, Rgb colour, const std::string& name) {
    const std::string shown = fitted(name, area.max.x - area.min.x - px(40));
    draw.AddRectFilled({at.x - px(4), y}, {at.x + width_of(shown) + px(22), y + line},
                       paint(theme().panel, 190), px(3));
    draw.AddRectFilled({at.x, y + line / 2 - px(2)}, {at.x + px(12), y + line / 2 + px(1)},
                       paint(colour));
    draw.AddText({at.x + px(18), y}, paint(theme().text), shown.c_str());
  };
  const Comparison& comparison = selection.comparison;
  const Model* const other = comparison.other().get();
  put(at.y, curve_colour(value_), lane_label(model, other, selection.cursor.lane()));
  if (!comparison.reference()) return;
  put(at.y + line, theme().compare,
      comparison.reference()->other ? lane_label(*other, &model, comparison.reference()->lane)
                                    : lane_label(model, other, comparison.reference()->lane));
}

void ComparePanel::fill_both(const Model& model, const Selection& selection, const PlotArea& area) {
  const auto columns = std::max(2U, static_cast<uint32_t>(area.max.x - area.min.x));
  const uint32_t lane = selection.cursor.lane();
  fill(model, model.lanes[lane], area.view, 0, columns, mine_);
  const Comparison& comparison = selection.comparison;
  const std::optional<Reference>& reference = comparison.reference();
  if (!reference || (!reference->other && reference->lane == lane)) {
    theirs_ = {};
  } else {
    const Model& there = comparison.model_of_reference(model);
    fill(there, there.lanes[reference->lane], area.view,
         reference->other ? comparison.offset(model) : 0, columns, theirs_);
  }
}

void ComparePanel::plot_both(const PlotArea& area) {
  ImGui::SetCursorScreenPos(area.min);
  if (!ImPlot::BeginPlot("##two", area.max - area.min,
                         ImPlotFlags_CanvasOnly | ImPlotFlags_NoInputs | ImPlotFlags_NoFrame)) {
    return;
  }
  constexpr ImPlotAxisFlags kBare = ImPlotAxisFlags_NoDecorations;
  ImPlot::SetupAxes(nullptr, nullptr, kBare, kBare);
  ImPlot::SetupAxesLimits(area.view.begin, area.view.end, 0, area.top_bytes, ImPlotCond_Always);
  const ImVec4 colour = vec(curve_colour(value_));
  const auto n = static_cast<int>(mine_.xs.size());
  ImPlot::SetNextFillStyle(colour, 0.28F);
  ImPlot::PlotShaded("mine", mine_.xs.data(), mine_.ys.data(), n, 0.0);
  ImPlot::SetNextLineStyle(colour, px(1.6F));
  ImPlot::PlotLine("mine", mine_.xs.data(), mine_.ys.data(), n);
  ImPlot::SetNextLineStyle(vec(theme().compare), px(1.8F));
  ImPlot::PlotLine("theirs", theirs_.xs.data(), theirs_.ys.data(),
                   static_cast<int>(theirs_.xs.size()));
  ImPlot::EndPlot();
}

void ComparePanel::draw_plot(const Model& model, Selection& selection, ImVec2 size) {
  const float gutter = px(kGutterPx);
  const ImVec2 plot(size.x - gutter, size.y - px(kAxisPx));
  if (plot.x < px(60) || plot.y < px(30)) return;
  const ImVec2 at = ImGui::GetCursorScreenPos() + ImVec2(gutter, 0);
  const std::vector<Tick> ticks = axis_ticks(selection.view.range(), plot.x);
  draw_time_axis(model, selection.cursor, ticks,
                 {at, at + ImVec2(plot.x, px(kAxisPx)), selection.view.range(), 1});
  PlotArea area{at + ImVec2(0, px(kAxisPx)), {}, selection.view.range(), 1};
  area.max = area.min + plot;
  ImGui::SetCursorScreenPos(area.min);
  ImGui::InvisibleButton("##overlay", plot);
  const std::optional<ImVec2> click = gestures_.handle(selection.view, area);
  area.view = selection.view.range();
  fill_both(model, selection, area);
  double top = 1024;
  for (int i = 0; i < 2; ++i) {
    const std::vector<double>& ys = i == 0 ? mine_.ys : theirs_.ys;
    drawn_top[i] = ys.empty() ? 0 : *std::max_element(ys.begin(), ys.end());
    top = std::max(top, drawn_top[i]);
  }
  area.top_bytes = top * 1.3;
  plot_both(area);
  draw_time_grid(ticks, area);
  draw_byte_labels(area);
  draw_cursor_lines(model, selection, area);
  draw_legend(model, selection, area);
  if (click) selection.set_time(model, selection.cursor.lane(), area.time(click->x));
}

void ComparePanel::draw_offers(const Model& model, Selection& selection) {
  text_wrapped(
      "Choose what to compare with: a rank or a second trace in the list above, or ctrl-click a "
      "rank.");
  if (ImGui::Button(selection.comparison.reference() ? "Stop comparing" : "Compare from here")) {
    selection.toggle_compare(model);
  }
  explain("Then move the cursor: the lines below show what was allocated and freed since (C).");
  const RankComparison& ranks = model.report.comparison;
  if (!ranks.compared) return;
  for (uint32_t i = 0; i < model.lanes.size(); ++i) {
    if (model.process_of(model.lanes[i]).info.rank != ranks.typical.rank) continue;
    if (i == selection.cursor.lane()) return;
    const std::string label = fmt::format("Compare with rank {} (typical)", ranks.typical.rank);
    flow(width_of(label) + px(20));
    if (ImGui::Button(label.c_str())) selection.compare_with(model, {false, i, 0, true});
    return;
  }
}

void ComparePanel::draw_rows(const Model& model, Selection& selection) {
  const std::optional<Compared> before = selection.compared(model);
  if (!before) {
    draw_offers(model, selection);
    return;
  }
  if (model_ != &model || version_ != selection.version() || reported_ != model.report_ready) {
    model_ = &model;
    reported_ = model.report_ready;
    version_ = selection.version();
    rows_ = change_rows(model, model.lanes[selection.cursor.lane()], selection.cursor.moment(model),
                        *before);
  }
  constexpr ImGuiTableFlags kFlags =
      ImGuiTableFlags_ScrollY | ImGuiTableFlags_RowBg | ImGuiTableFlags_SizingStretchProp;
  if (!ImGui::BeginTable("##changes", 4, kFlags)) return;
  const float number = width_of("+00000.0 MiB") + px(6);
  const auto [here, there] = side_names(model, selection);
  ImGui::TableSetupColumn("what", ImGuiTableColumnFlags_WidthStretch);
  ImGui::TableSetupColumn("change", kNumber, number);
  for (const std::string& name : {there, here}) {
    const std::string shown = fitted_ends(name, px(kNamePx));
    ImGui::TableSetupColumn(shown.c_str(), kNumber, std::max(number, width_of(shown) + px(6)));
  }
  begin_rows();
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(rows_.size()));
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const ChangeRow& row = rows_[static_cast<size_t>(i)];
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      const float room = ImGui::GetContentRegionAvail().x;
      if (row.heading) {
        const WithFont bold(fonts().bold);
        text_in_colour(theme().dim, fitted(row.name, room));
        continue;
      }
      text(fitted(row.name, room));
      explain(row.name.c_str());
      ImGui::TableNextColumn();
      ImGui::PushStyleColor(ImGuiCol_Text, paint(change_ink(row.change())));
      text_right(signed_size_text(row.change()));
      ImGui::PopStyleColor();
      ImGui::TableNextColumn();
      const auto [now, then] = size_texts(row.after, row.before);
      text_right(then);
      ImGui::TableNextColumn();
      text_right(now);
    }
  }
  ImGui::EndTable();
}

void ComparePanel::draw(const Model& model, Selection& selection) {
  if (selection.cursor.lane() >= model.lanes.size()) {
    text_dim("This trace has no allocator history.");
    return;
  }
  draw_choice(model, selection);
  const ImVec2 room = ImGui::GetContentRegionAvail();
  // With nothing to compare, the curve takes the space of the table.
  const bool two = selection.compared(model).has_value();
  const float most = two ? px(420) : std::max(px(60), room.y - px(90));
  const float plot = std::floor(std::clamp(room.y * (two ? 0.5F : 1.0F), px(60), most));
  const ImVec2 at = ImGui::GetCursorPos();
  draw_plot(model, selection, {room.x, plot});
  ImGui::SetCursorPos({at.x, at.y + plot + px(6)});
  draw_rows(model, selection);
}

}  // namespace tidemark::view
