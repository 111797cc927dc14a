#include "viewer/panels/ranks/rank_heat_view.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "analysis/wording.h"
#include "viewer/widgets/drawing.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr float kScalePx = 22;
constexpr float kLeastRowPx = 3;
constexpr float kMostRowPx = 150;
constexpr float kCellPx = 4;
constexpr float kHatchedRowPx = 6;  // lower ones are plain where nothing is known
constexpr int kFaded = 110;         // after the last event
constexpr int kShades = 40;         // neighbours of the same shade are drawn as one

// Blue is below the median of the ranks, orange above.
Rgb distance_colour(double share) {
  const Rgb ground = theme().dark ? Rgb{58, 64, 74} : Rgb{226, 229, 234};
  const Rgb goal = share > 0 ? Rgb{240, 150, 0} : Rgb{60, 150, 220};
  const double by = std::min(1.0, std::abs(share));
  const auto mix = [by](uint8_t a, uint8_t b) { return static_cast<uint8_t>(a + (b - a) * by); };
  return {mix(ground.r, goal.r), mix(ground.g, goal.g), mix(ground.b, goal.b)};
}

// Writes the names of ranks in the gutter, where the place is still free.
class Gutter {
 public:
  explicit Gutter(const PlotArea& area) : area_(area), line_(ImGui::GetTextLineHeight()) {}

  void write(float y, float height, Rgb colour, const std::string& name) {
    const float most = std::max(area_.min.y, area_.max.y - line_);
    const float at = std::round(std::clamp(y + (height - line_) / 2, area_.min.y, most));
    for (const float t : taken_) {
      if (std::abs(t - at) < line_) return;
    }
    taken_.push_back(at);
    const std::string shown = fitted_ends(name, px(kGutterPx - 12));
    ImGui::GetWindowDrawList()->AddText({std::round(area_.min.x - width_of(shown) - px(8)), at},
                                        paint(colour), shown.c_str());
  }

 private:
  const PlotArea& area_;
  float line_;
  std::vector<float> taken_;
};

}  // namespace

void choose_rank(const Model& model, Selection& selection, const RankRows& rows, size_t row,
                 double time) {
  const uint32_t lane = rows.lanes[row];
  if (lane == RankRows::kNoLane) {
    selection.requests.rank = rows.request(row, time);
  } else if (ImGui::GetIO().KeyCtrl) {
    selection.compare_with(model, {false, lane, 0, true});
  } else {
    selection.set_time(model, lane, time);
  }
}

bool RankHeatView::column_at(double time, uint32_t& column) const {
  const HeatTable& t = heat_.shown();
  const double share = (time - t.view.begin) / t.view.span();
  if (t.columns == 0 || share < 0 || share >= 1) return false;
  column = std::min(static_cast<uint32_t>(share * t.columns), t.columns - 1);
  return true;
}

size_t RankHeatView::highest(const Grid& grid, size_t row, uint32_t column) const {
  const HeatTable& t = heat_.shown();
  size_t best = grid.first(row);
  for (size_t r = best + 1; r < grid.last(row); ++r) {
    const uint64_t now = t.at(best, column);
    const uint64_t bytes = t.at(r, column);
    if (bytes != HeatTable::kUnknown && (now == HeatTable::kUnknown || bytes > now)) best = r;
  }
  return best;
}

Rgb RankHeatView::colour_of(uint64_t bytes, uint64_t middle) const {
  const auto top = static_cast<double>(top_bytes_);
  const auto stepped = [](double share) { return std::round(share * kShades) / kShades; };
  if (!options_.relative) return viridis(stepped(std::min(1.0, static_cast<double>(bytes) / top)));
  const double distance = (static_cast<double>(bytes) - static_cast<double>(middle)) / top;
  return distance_colour(stepped(distance * 2));
}

void RankHeatView::draw_cells(const Grid& grid) const {
  const HeatTable& t = heat_.shown();
  if (t.rows() != grid.ranks || t.columns == 0) return;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float height = grid.height();
  const float gap = height > px(8) ? px(1) : 0;
  const auto x_of = [&](uint32_t column) {
    return grid.area.x(t.view.begin + t.view.span() * (static_cast<double>(column) / t.columns));
  };
  for (size_t row = 0; row < grid.drawn; ++row) {
    const float y = grid.area.min.y + static_cast<float>(row) * height;
    const auto paint_of = [&](uint32_t c) -> ImU32 {
      const size_t best = highest(grid, row, c);
      const uint64_t bytes = t.at(best, c);
      if (bytes == HeatTable::kUnknown) return 0;
      // After the last event only the last value is known.
      return paint(colour_of(bytes, t.middle[c]), c >= t.ends[best] ? kFaded : 255);
    };
    uint32_t from = 0;
    ImU32 colour = paint_of(0);
    for (uint32_t c = 1; c <= t.columns; ++c) {
      const ImU32 next = c < t.columns ? paint_of(c) : ~colour;
      if (next == colour) continue;
      if (colour != 0) {
        draw.AddRectFilled({x_of(from), y}, {x_of(c), y + height - gap}, colour);
      } else if (height >= px(kHatchedRowPx)) {
        draw_hatch(draw, {x_of(from), y}, {x_of(c), y + height - gap}, paint(theme().line), px(8));
      }
      from = c;
      colour = next;
    }
  }
}

void RankHeatView::draw_names(const Model& model, const Selection& selection, const RankRows& rows,
                              const Grid& grid) const {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float height = grid.height();
  Gutter gutter(grid.area);
  // The important ones first; the others where space is left.
  float inset = 0;
  const auto mark = [&](size_t row, Rgb colour) {
    if (row == SIZE_MAX) return;
    const ImVec2 min(grid.area.min.x - px(1) + inset, grid.y(row) + inset);
    const ImVec2 max(grid.area.max.x + px(1) - inset,
                     grid.y(row) + std::max(height, px(4)) - inset);
    draw.AddRect(min, max, paint(colour), 0, 0, px(1.5F));
    gutter.write(grid.y(row), height, colour, rows.name(model, row));
  };
  mark(rows.outlier(model), theme().bad);
  const size_t selected = rows.of_lane(selection.cursor.lane());
  inset = selected == rows.outlier(model) ? px(2) : 0;
  mark(selected, theme().accent);
  inset = 0;
  if (selection.comparison.reference() && !selection.comparison.reference()->other) {
    mark(rows.of_lane(selection.comparison.reference()->lane), theme().compare);
  }
  const auto per_name = static_cast<size_t>(std::ceil(ImGui::GetTextLineHeight() / height));
  for (size_t row = 0; row < grid.drawn; row += per_name) {
    const size_t rank = grid.first(row);
    gutter.write(grid.y(rank), height, theme().dim, rows.name(model, rank));
  }
}

void RankHeatView::draw_waits(const Model& model, const RankRows& rows, const Grid& grid) const {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const PlotArea& area = grid.area;
  const float height = grid.height();
  const auto middle_of = [&](size_t row) { return grid.y(row) + height / 2; };
  draw.PushClipRect(area.min, area.max, true);
  for (const StuckCollective& s : model.report.comparison.stuck) {
    const float from = area.x(since_start(model, s.since_ns));
    const float to = area.x(model.span_ns());
    const float thick = std::min(px(3), std::max(1.0F, height / 3));
    for (const int64_t rank : s.waiting) {
      const size_t row = rows.of_rank(rank);
      if (row == SIZE_MAX) continue;
      const float y = middle_of(row);
      if (height < px(8)) {  // hundreds of ranks: a thin line each
        draw.AddLine({from, y}, {to, y}, paint(theme().warning, 160), 1);
        continue;
      }
      draw.AddLine({from, y}, {to, y}, paint(theme().background, 190), thick + 2);
      draw_dashes(draw, {from, y}, {to, y}, paint(theme().warning), px(6), thick);
    }
    for (const int64_t rank : s.absent) {
      const size_t row = rows.of_rank(rank);
      if (row != SIZE_MAX) {
        draw.AddCircleFilled({from, middle_of(row)}, px(4), paint(theme().bad));
      }
    }
  }
  const auto draw_error = [&](size_t row, int64_t time_ns) {
    if (row == SIZE_MAX) return;
    const float x = area.x(since_start(model, time_ns));
    const float half = std::max(height / 2, px(2));
    draw.AddLine({x, middle_of(row) - half}, {x, middle_of(row) + half}, paint(theme().bad),
                 px(2.5F));
  };
  for (const OomPoint& oom : model.ooms) draw_error(rows.of_lane(oom.lane), oom.time_ns);
  for (size_t row = 0; row < rows.summaries.size(); ++row) {
    const RankRows::Summary& s = rows.summaries[row];
    for (const DeviceReport& d : model.job->job.ranks[s.rank].summary.report.devices) {
      if (d.device != s.curve->device || rows.lanes[row] != RankRows::kNoLane) continue;
      for (const OomReport& oom : d.ooms) draw_error(row, oom.time_ns);
    }
  }
  draw.PopClipRect();
}

void RankHeatView::draw_parting(const Model& model, const RankRows& rows, const Grid& grid) const {
  const Divergence& parted = model.report.comparison.divergence;
  const size_t row = rows.of_rank(parted.rank);
  if (!parted.time_ns || row == SIZE_MAX) return;
  const PlotArea& area = grid.area;
  const double since = since_start(model, *parted.time_ns);
  const float x = area.x(since);
  if (x < area.min.x || x > area.max.x) return;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  draw_dashes(draw, {x, area.min.y}, {x, area.max.y}, paint(theme().bad), px(5), px(1.5F));
  const std::string label =
      fmt::format("{} apart since {}", rows.name(model, row), instant_text(since, model.span_ns()));
  // Above its row, or in it where there is none.
  const float line = ImGui::GetFontSize() + px(4);
  if (grid.height() < line) return;
  const float bottom = row == 0 ? grid.y(row) + line + px(3) : grid.y(row) - px(2);
  draw_flag(draw, {x, bottom}, area.min.x, area.max.x, theme().bad, label);
}

void RankHeatView::draw_scale(ImVec2 min, ImVec2 max, float most_x) const {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const std::string half = size_text(top_bytes_ / 2);
  const std::string left = options_.relative ? "-" + half : "0";
  const std::string right = options_.relative ? "+" + half : size_text(top_bytes_);
  const float y = min.y + (max.y - min.y - ImGui::GetTextLineHeight()) / 2;
  draw.AddText({min.x, y}, paint(theme().dim), left.c_str());
  min.x += width_of(left) + px(6);
  const float step = (max.x - min.x) / kShades;
  for (int i = 0; i < kShades; ++i) {
    const double share = (i + 0.5) / kShades;
    const Rgb colour = options_.relative ? distance_colour(share * 2 - 1) : viridis(share);
    draw.AddRectFilled({min.x + step * static_cast<float>(i), min.y},
                       {min.x + step * static_cast<float>(i + 1), max.y}, paint(colour));
  }
  draw.AddText({max.x + px(6), y}, paint(theme().dim), right.c_str());
  draw_keys({max.x + px(6) + width_of(right) + px(24), min.y}, max.y - min.y, most_x);
}

// What cells without a value of their own look like.
void RankHeatView::draw_keys(ImVec2 at, float height, float most_x) const {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float y = at.y + (height - ImGui::GetTextLineHeight()) / 2;
  const auto key = [&](const char* name, bool faded) {
    const ImVec2 end = at + ImVec2(px(24), height);
    if (end.x + px(6) + width_of(name) > most_x) return;
    draw.AddRectFilled(at, end, paint(theme().raised, 140));
    if (faded) {
      draw.AddRectFilled(at, end, paint(colour_of(top_bytes_ / 2, top_bytes_ / 4), kFaded));
    } else {
      draw_hatch(draw, at, end, paint(theme().line), px(8));
    }
    draw.AddText({end.x + px(6), y}, paint(theme().dim), name);
    at.x = end.x + px(6) + width_of(name) + px(18);
  };
  key("after the last event", true);
  key("no data", false);
}

void RankHeatView::explain_cell(const Model& model, const RankRows& rows, const Grid& grid,
                                size_t row) const {
  const HeatTable& t = heat_.shown();
  const double time = grid.area.time(ImGui::GetMousePos().x);
  uint32_t column = 0;
  if (t.rows() != grid.ranks || !column_at(time, column) || !ImGui::BeginTooltip()) return;
  const size_t best = highest(grid, row, column);
  text(rows.full_name(model, best) + "  at " + instant_text(time, grid.area.view.span()));
  const uint64_t bytes = t.at(best, column);
  if (bytes == HeatTable::kUnknown) {
    text_dim("before its first recorded event");
  } else {
    text(fmt::format("{}  maximum {}", rank_value_name(options_.value), size_text(bytes)));
    const int64_t apart = static_cast<int64_t>(bytes) - static_cast<int64_t>(t.middle[column]);
    text_dim(signed_size_text(apart) + " from the median of the ranks");
    if (column >= t.ends[best]) text_dim("after its last recorded event");
  }
  if (grid.last(row) - grid.first(row) > 1) {
    text_dim(fmt::format("the highest of {} to {}", rows.name(model, grid.first(row)),
                         rows.name(model, grid.last(row) - 1)));
  }
  text_dim("click: select   ctrl-click: compare   wheel: zoom");
  ImGui::EndTooltip();
}

bool RankHeatView::draw(const Model& model, Selection& selection, const RankRows& rows,
                        const RankOptions& options, ImVec2 size, int64_t budget_ns) {
  options_ = options;
  top_bytes_ = rows.highest_peak(model, options.value);
  const float gutter = px(kGutterPx);
  const float width = size.x - gutter;
  const float room = size.y - px(kAxisPx) - px(kScalePx);
  if (width < px(60) || room < px(kLeastRowPx) * 4) return true;
  const ImVec2 at = ImGui::GetCursorScreenPos() + ImVec2(gutter, 0);
  Grid grid;
  grid.ranks = rows.size();
  grid.drawn = std::clamp<size_t>(static_cast<size_t>(room / px(kLeastRowPx)), 1, rows.size());
  const float height = std::min(room, static_cast<float>(grid.drawn) * px(kMostRowPx));
  PlotArea& area = grid.area;
  area = {at + ImVec2(0, px(kAxisPx)), at + ImVec2(width, px(kAxisPx) + height),
          selection.view.range(), 1};
  ImGui::SetCursorScreenPos(area.min);
  ImGui::InvisibleButton("##heat", {width, height});
  const bool hovered = ImGui::IsItemHovered();
  const std::optional<ImVec2> click = gestures_.handle(selection.view, area);
  area.view = selection.view.range();
  heat_.want(model, rows, options.value, selection.view.range(),
             std::max(2U, static_cast<uint32_t>(width / px(kCellPx))));
  const bool done = heat_.work(budget_ns);

  ImDrawList& draw = *ImGui::GetWindowDrawList();
  draw.AddRectFilled(area.min, area.max, paint(theme().raised, 140));
  // Outside the trace there is nothing to show.
  draw.PushClipRect({std::max(area.min.x, area.x(0)), area.min.y},
                    {std::min(area.max.x, area.x(model.span_ns())), area.max.y}, true);
  draw_cells(grid);
  draw.PopClipRect();
  draw_time_axis(model, selection.cursor, axis_ticks(selection.view.range(), width),
                 {at, at + ImVec2(width, px(kAxisPx)), selection.view.range(), 1});
  draw_waits(model, rows, grid);
  draw_parting(model, rows, grid);
  draw_names(model, selection, rows, grid);
  draw_cursor_lines(model, selection, area);
  const float below = area.max.y + px(6);
  draw_scale({at.x, below}, {at.x + std::min(px(240), width / 2), below + px(kScalePx) - px(10)},
             area.max.x);
  ImGui::SetCursorScreenPos({at.x - gutter, below + px(kScalePx) - px(8)});
  ImGui::Dummy({1, 1});
  if (!hovered && !click) return done;

  const float share = (ImGui::GetMousePos().y - area.min.y) / height;
  const auto row =
      static_cast<size_t>(std::clamp(share, 0.0F, 0.9999F) * static_cast<float>(grid.drawn));
  if (hovered && !ImGui::IsMouseDown(0)) explain_cell(model, rows, grid, row);
  if (click) {
    const double time = area.time(click->x);
    uint32_t column = 0;
    const bool known = heat_.shown().rows() == grid.ranks && column_at(time, column);
    const size_t best = known ? highest(grid, row, column) : grid.first(row);
    choose_rank(model, selection, rows, best, time);
  }
  return done;
}

}  // namespace tidemark::view
