#include "viewer/panels/ranks/ranks_panel.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "analysis/wording.h"
#include "export/report/rank_report.h"
#include "viewer/model/stack/steps_apart.h"
#include "viewer/panels/timeline/time_axis.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr int64_t kBudgetNs = 3'000'000;  // per frame
constexpr size_t kStuckLines = 3;

}  // namespace

void RanksPanel::go(const Model& model, Selection& selection, int64_t rank, int64_t time_ns) {
  const size_t row = rows_.of_rank(rank);
  if (row == SIZE_MAX) return;
  const double time = since_start(model, time_ns);
  if (rows_.lanes[row] == RankRows::kNoLane) {
    selection.requests.rank = rows_.request(row, time);
  } else {
    selection.set_time(model, rows_.lanes[row], time);
  }
  selection.view.reveal(time);
}

void RanksPanel::draw_toolbar() {
  // Summaries are drawn as a heat map only.
  const bool summarized = !rows_.summaries.empty();
  if (summarized) curves = false;
  ImGui::BeginDisabled(summarized);
  if (ImGui::RadioButton("heat map", !curves)) curves = false;
  explain("A row per rank: its maximum in each range of time.");
  flow(px(90));
  if (ImGui::RadioButton("curves", curves)) curves = true;
  explain("A small curve per rank, all at the same scale.");
  ImGui::EndDisabled();
  flow(px(130));
  ImGui::SetNextItemWidth(px(120));
  if (ImGui::BeginCombo("##value", rank_value_name(options.value))) {
    for (const RankValue v : kRankValues) {
      if (ImGui::Selectable(rank_value_name(v), options.value == v)) options.value = v;
    }
    ImGui::EndCombo();
  }
  if (curves) return;
  flow(px(190));
  ImGui::Checkbox("relative to the median", &options.relative);
  explain("Colours show how far each rank is above (orange) or below (blue) the median of all.");
}

void RanksPanel::draw_compare_button(const Model& model, Selection& selection) {
  const RankComparison& c = model.report.comparison;
  const size_t high = rows_.of_rank(c.highest.rank);
  const size_t typical = rows_.of_rank(c.typical.rank);
  if (high == SIZE_MAX || typical == SIZE_MAX || high == typical) return;
  if (rows_.lanes[high] == RankRows::kNoLane || rows_.lanes[typical] == RankRows::kNoLane) return;
  flow(px(140));
  if (ImGui::SmallButton("Compare the two")) {
    const auto peak = [&](uint32_t lane) { return model.lanes[lane].memory->allocated_peak.event; };
    const uint32_t mine = rows_.lanes[high];
    const uint32_t theirs = rows_.lanes[typical];
    selection.set_event(model, mine, peak(mine));
    selection.compare_with(model, {false, theirs, peak(theirs), false});
    selection.requests.panel = "Compare";
  }
  explain("Both curves in one plot, and what is live in one but not in the other.");
}

void RanksPanel::draw_since_step(const Model& model, float room) {
  const RankComparison& c = model.report.comparison;
  const size_t guilty = rows_.of_rank(c.divergence.rank);
  const size_t typical = rows_.of_rank(c.typical.rank);
  if (guilty == SIZE_MAX || typical == SIZE_MAX) return;
  if (rows_.lanes[guilty] == RankRows::kNoLane || rows_.lanes[typical] == RankRows::kNoLane) return;
  const std::string line =
      since_which_step(model, model.lanes[rows_.lanes[guilty]], model.lanes[rows_.lanes[typical]]);
  text(fitted(line, room));
  explain(line.c_str());
}

void RanksPanel::draw_summary(const Model& model, Selection& selection) {
  const RankComparison& c = model.report.comparison;
  if (!c.compared) return;
  const float room = ImGui::GetContentRegionAvail().x - px(60);
  const auto [highest, typical] = size_texts(c.highest.bytes, c.typical.bytes);
  std::string line =
      c.highest.bytes == c.typical.bytes
          ? fmt::format("no rank has a higher peak than the typical one, {}", typical)
          : fmt::format("rank {} has the highest peak, {}; {} is typical (rank {})", c.highest.rank,
                        highest, typical, c.typical.rank);
  text_in_colour(c.divergence.found ? theme().bad : theme().dim, fitted(line, room));
  explain(line.c_str());
  ImGui::SameLine();
  if (ImGui::SmallButton("Go##peak")) go(model, selection, c.highest.rank, c.highest.time_ns);
  draw_compare_button(model, selection);
  if (c.divergence.found && !c.divergence.time_ns) draw_since_step(model, room);
  if (!c.divergence.time_ns) return;
  const double since = since_start(model, *c.divergence.time_ns);
  // It is found by samples, so it may fall below for a moment.
  line = fmt::format("rank {} is mostly above the median of the ranks from {} up to its peak",
                     c.divergence.rank, instant_text(since, model.span_ns()));
  text(fitted(line, room));
  explain(line.c_str());
  ImGui::SameLine();
  if (ImGui::SmallButton("Go##apart")) {
    go(model, selection, c.divergence.rank, *c.divergence.time_ns);
  }
}

void RanksPanel::draw_stuck(const Model& model, Selection& selection) {
  const std::vector<StuckCollective>& stuck = model.report.comparison.stuck;
  if (stuck.empty()) return;
  const auto lines = static_cast<float>(std::min(stuck.size(), kStuckLines));
  ImGui::BeginChild("##stuck", {0, lines * ImGui::GetTextLineHeightWithSpacing() + px(2)});
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(stuck.size()));
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const StuckCollective& s = stuck[static_cast<size_t>(i)];
      const std::string all = stuck_text(s, model.trace.start_ns);
      ImGui::PushStyleColor(ImGuiCol_Text, paint(theme().warning));
      const std::string label =
          fitted(all, ImGui::GetContentRegionAvail().x) + fmt::format("##stuck{}", i);
      const bool clicked = ImGui::Selectable(label.c_str());
      ImGui::PopStyleColor();
      explain(all.c_str());
      // Go to the rank that the others wait for.
      const std::vector<int64_t>& ranks = s.absent.empty() ? s.waiting : s.absent;
      if (clicked && !ranks.empty()) go(model, selection, ranks.front(), s.since_ns);
    }
  }
  ImGui::EndChild();
}

void RanksPanel::draw(const Model& model, Selection& selection) {
  unfinished_ = false;
  if (model_ != &model) rows_ = RankRows::of(model);
  model_ = &model;
  if (rows_.size() < 2) {
    text_wrapped(
        "This trace has one device. Open the folder with the traces of all ranks to compare them.");
    return;
  }
  draw_toolbar();
  note_left_out(selection.view);
  draw_summary(model, selection);
  draw_stuck(model, selection);
  const ImVec2 room = ImGui::GetContentRegionAvail();
  if (curves) {
    unfinished_ = !curves_.draw(model, selection, rows_, options, room, patient ? -1 : kBudgetNs);
  } else {
    unfinished_ = !heat_.draw(model, selection, rows_, options, room, patient ? -1 : kBudgetNs);
  }
}

}  // namespace tidemark::view
