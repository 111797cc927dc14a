#include "viewer/panels/ranks/rank_curves_view.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "analysis/wording.h"
#include "viewer/widgets/drawing.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr float kLeastPx = 200;  // width of one
constexpr float kHeightPx = 74;
constexpr float kGapPx = 6;
Rgb value_colour(RankValue value) {
  return value == RankValue::kUsed ? theme().used : curve_colour(static_cast<Curve>(value));
}

constexpr float kShape = 3;  // width to height at which a curve is easiest to read

// How many in a line: few large ones where all fit, else as many as are readable.
size_t columns_for(size_t count, ImVec2 room) {
  const float gap = px(kGapPx);
  const auto most = std::max<size_t>(1, static_cast<size_t>((room.x + gap) / (px(kLeastPx) + gap)));
  size_t best = most;
  float best_miss = 1e9F;
  for (size_t n = 1; n <= std::min(most, count); ++n) {
    const auto lines = static_cast<float>((count + n - 1) / n);
    const float height = (room.y + gap) / lines - gap;
    if (height < px(kHeightPx)) continue;
    const float width = (room.x + gap) / static_cast<float>(n) - gap;
    const float miss = std::abs(std::log(width / height / kShape));
    if (miss < best_miss) {
      best_miss = miss;
      best = n;
    }
  }
  return best;
}

}  // namespace

const RankColumns& RankCurvesView::values_of(const Model& model, uint32_t lane,
                                             const VisibleRange& view, uint32_t columns) {
  Small& small = small_[lane];
  const bool same = small.columns == columns && small.value == options_.value &&
                    small.view.begin == view.begin && small.view.end == view.end;
  const bool to_the_end = budget_ns_ < 0;
  if (!same) {
    small.view = view;
    small.columns = columns;
    small.value = options_.value;
    small.values.begin(model, model.lanes[lane], options_.value, view, columns);
  }
  if ((same || to_the_end) && !small.values.is_exact() && budget_ns_ != 0) {
    const auto begin = std::chrono::steady_clock::now();
    small.values.work(budget_ns_);
    const std::chrono::nanoseconds used = std::chrono::steady_clock::now() - begin;
    if (!to_the_end) budget_ns_ = std::max<int64_t>(0, budget_ns_ - used.count());
  }
  exact_ = exact_ && small.values.is_exact();
  return small.values.values();
}

void RankCurvesView::draw_values(const Model& model, uint32_t lane, const PlotArea& area,
                                 Rgb colour) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const auto columns = std::max(2U, static_cast<uint32_t>(area.max.x - area.min.x));
  const RankColumns& all = values_of(model, lane, area.view, columns);
  // A column may reach beyond the end of the recording: the fill stops there.
  const float stop = area.x(since_start(model, model.end_of(model.lanes[lane])));
  for (uint32_t i = all.first_known; i < columns; ++i) {
    const float x = area.min.x + static_cast<float>(i);
    if (x > stop) break;
    const float top = area.y(static_cast<double>(all.max[i]));
    const float low = area.y(static_cast<double>(all.min[i]));
    draw.AddRectFilled({x, top}, {x + 1, area.max.y}, paint(colour, 70));
    draw.AddRectFilled({x, top}, {x + 1, std::max(low, top + px(1.5F))}, paint(colour));
  }
  for (const OomPoint& oom : model.ooms) {
    if (oom.lane != lane) continue;
    const float x = area.x(since_start(model, oom.time_ns));
    draw.AddLine({x, area.min.y}, {x, area.max.y}, paint(theme().bad), px(1.5F));
  }
}

void RankCurvesView::draw_one(const Model& model, Selection& selection, const RankRows& rows,
                              size_t row, ImVec2 size) {
  const uint32_t index = rows.lanes[row];
  const Lane& lane = model.lanes[index];
  PlotArea area{ImGui::GetCursorScreenPos(), {}, selection.view.range(), top_bytes_ * 1.35};
  area.max = area.min + size;
  ImGui::PushID(static_cast<int>(row));
  ImGui::InvisibleButton("##small", size);
  ImGui::PopID();
  const bool hovered = ImGui::IsItemHovered();
  const std::optional<ImVec2> click = gestures_.handle(selection.view, area);
  area.view = selection.view.range();

  const bool outlier = rows.outlier(model) == row;
  const bool chosen = index == selection.cursor.lane();
  const bool compared = selection.comparison.reference() &&
                        !selection.comparison.reference()->other &&
                        selection.comparison.reference()->lane == index;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  draw.AddRectFilled(area.min, area.max, paint(theme().raised, 130), px(3));
  draw.PushClipRect(area.min, area.max, true);
  draw_values(model, index, area, outlier ? theme().bad : value_colour(options_.value));
  const Divergence& parted = model.report.comparison.divergence;
  if (parted.time_ns && rows.of_rank(parted.rank) == row) {
    const double since = since_start(model, *parted.time_ns);
    const float x = area.x(since);
    draw_dashes(draw, {x, area.min.y}, {x, area.max.y}, paint(theme().bad), px(5), px(1.5F));
    if (x >= area.min.x && x <= area.max.x) {
      draw_flag(draw, {x, area.max.y - px(2)}, area.min.x, area.max.x, theme().bad,
                "apart since " + instant_text(since, model.span_ns()));
    }
  }
  draw_cursor_lines(model, selection, area);
  const std::string peak = size_text(RankRows::peak_of(lane, options_.value));
  const float pad = px(6);
  const float top = area.min.y + px(3);
  const std::string name = fitted(rows.name(model, row), size.x - width_of(peak) - 3 * pad);
  const Rgb ink = outlier ? theme().bad : chosen ? theme().accent : theme().text;
  draw.AddText({area.min.x + pad, top}, paint(ink), name.c_str());
  const float left = area.max.x - width_of(peak) - pad;
  draw.AddRectFilled({left - px(3), top}, {area.max.x, top + ImGui::GetTextLineHeight()},
                     paint(theme().panel, 200), px(2));
  draw.AddText({left, top}, paint(theme().dim), peak.c_str());
  draw.PopClipRect();
  if (outlier || chosen || compared) {
    const Rgb edge = chosen ? theme().accent : compared ? theme().compare : theme().bad;
    draw.AddRect(area.min, area.max, paint(edge), px(3), 0, px(1.5F));
  }
  if (hovered && !ImGui::IsMouseDown(0) && ImGui::BeginTooltip()) {
    text(lane.name);
    text_dim(fmt::format("{}: maximum {}   {}", rank_value_name(options_.value), peak, lane.card));
    text_dim("click: select   ctrl-click: compare   wheel: zoom");
    ImGui::EndTooltip();
  }
  if (click) choose_rank(model, selection, rows, row, area.time(click->x));
}

bool RankCurvesView::draw(const Model& model, Selection& selection, const RankRows& rows,
                          const RankOptions& options, ImVec2 size, int64_t budget_ns) {
  budget_ns_ = budget_ns;
  exact_ = true;
  if (model_ != &model) small_.clear();
  model_ = &model;
  options_ = options;
  top_bytes_ = static_cast<double>(rows.highest_peak(model, options.value));
  const float gap = px(kGapPx);
  ImGui::BeginChild("##multiples", size, 0, ImGuiWindowFlags_NoScrollWithMouse);
  const float width = ImGui::GetContentRegionAvail().x;
  const size_t across = columns_for(rows.size(), {width, size.y});
  const float each = std::floor((width + gap) / static_cast<float>(across)) - gap;
  // A few ranks share the space, many scroll.
  const auto lines = static_cast<float>((rows.size() + across - 1) / across);
  const float share = std::floor((size.y + gap) / lines) - gap;
  const float height = std::clamp(share, px(kHeightPx), std::max(px(kHeightPx), each * 0.6F));
  // Ctrl and the wheel scroll through the ranks; the wheel alone zooms in time.
  if (ImGui::IsWindowHovered() && ImGui::GetIO().KeyCtrl && ImGui::GetIO().MouseWheel != 0) {
    ImGui::SetScrollY(ImGui::GetScrollY() - ImGui::GetIO().MouseWheel * height);
  }
  const size_t row = rows.of_lane(selection.cursor.lane());
  if (std::exchange(last_lane_, selection.cursor.lane()) != selection.cursor.lane() &&
      row != SIZE_MAX) {
    const float y = static_cast<float>(row / across) * (height + gap);
    const float top = ImGui::GetScrollY();
    if (y < top || y + height > top + size.y) ImGui::SetScrollY(y - size.y / 2);
  }
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(gap, gap));
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>((rows.size() + across - 1) / across), height + gap);
  while (clipper.Step()) {
    for (int line = clipper.DisplayStart; line < clipper.DisplayEnd; ++line) {
      const size_t first = static_cast<size_t>(line) * across;
      for (size_t i = first; i < std::min(first + across, rows.size()); ++i) {
        if (i != first) ImGui::SameLine();
        draw_one(model, selection, rows, i, {each, height});
      }
    }
  }
  ImGui::PopStyleVar();
  ImGui::EndChild();
  return exact_;
}

}  // namespace tidemark::view
