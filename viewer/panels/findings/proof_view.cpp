#include "viewer/panels/findings/proof_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"
#include "viewer/model/tables/owner_text.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr float kHeightPx = 70;
constexpr uint32_t kMostRanks = 24;
constexpr double kAbove = 1.08;  // space above the highest band

bool is_about_ranks(const Finding& finding) {
  return finding.id == "rank_imbalance";
}

// Enough to be seen. The line of a request that failed may hold nothing, and that of a pass is the
// one that calls the model.
bool holds_blocks(const Model& model, const Lane& lane, const std::string& line) {
  constexpr uint64_t kSeenPart = 64;
  const DeviceReport* device = model.report_of(lane);
  if (device == nullptr) return false;
  uint64_t bytes = 0;
  for (const StackShare& s : device->stacks) {
    if (headline_of(s.frames) == line) bytes += s.bytes;
  }
  return bytes > device->allocated_peak.bytes / kSeenPart;
}

StackBy bands_for(const Model& model, const Lane& lane, const Finding& finding,
                  const FindingPlace& place) {
  StackBy by = StackBy::kCategory;
  if (place.by == ShownBy::kMap && !place.colour) {
    by = StackBy::kSegment;  // about holes and pools
  } else if (!finding.frames.empty() && holds_blocks(model, lane, headline_of(finding.frames))) {
    by = StackBy::kLine;
  }
  return has_stack_way(model, lane, by) ? by : StackBy::kBlock;
}

// The time that the finding is about, with some space around it.
VisibleRange view_of(const Model& model, const FindingPlace& place) {
  VisibleRange view{0, std::max(model.span_ns(), 1e3)};
  if (place.range && place.range->end_ns > place.range->begin_ns) {
    view = since_start(model, *place.range);
    const double margin = view.span() * 0.1;
    view = {view.begin - margin, view.end + margin};
  }
  return view;
}

double time_of(const Model& model, const FindingPlace& place) {
  if (place.oom) return since_start(model, model.ooms[*place.oom].time_ns);
  if (place.time) return *place.time;
  const AllocationHistory& memory = *model.lanes[place.lane].memory;
  return place.event < memory.event_count() ? since_start(model, memory.time_ns[place.event]) : 0;
}

}  // namespace

ProofView::ProofView(std::shared_ptr<StackIndexes> indexes, const std::function<void()>& wake)
    : stack_(std::move(indexes)) {
  stack_.set_wake(wake);
}

// Every rank's curve, and that of the finding.
void ProofView::draw_ranks(const Model& model, const FindingPlace& place, const PlotArea& area) {
  const auto count = std::min(static_cast<uint32_t>(model.lanes.size()), kMostRanks);
  curves_.resize(size_t{count} + 1);
  PlotArea plot = area;
  for (uint32_t i = 0; i < count; ++i) {
    plot.top_bytes = std::max(
        plot.top_bytes, kAbove * static_cast<double>(model.lanes[i].memory->allocated_peak.bytes));
  }
  plot.top_bytes =
      std::max(plot.top_bytes,
               kAbove * static_cast<double>(model.lanes[place.lane].memory->allocated_peak.bytes));
  const auto columns = std::max(2U, static_cast<uint32_t>(area.max.x - area.min.x));
  const auto line = [&](LaneCurves& curves, uint32_t lane, ImU32 colour, float thickness) {
    curves.update(model, model.lanes[lane], area.view, columns);
    const std::vector<double>& xs = curves.xs(Curve::kAllocated);
    const std::vector<double>& ys = curves.ys(Curve::kAllocated);
    std::vector<ImVec2> points;
    for (size_t i = 0; i < xs.size(); ++i) points.emplace_back(plot.x_at(xs[i]), plot.y(ys[i]));
    ImGui::GetWindowDrawList()->AddPolyline(points.data(), static_cast<int>(points.size()), colour,
                                            0, thickness);
  };
  for (uint32_t i = 0; i < count; ++i) {
    if (i != place.lane) line(curves_[i], i, paint(theme().dim, 150), px(1));
  }
  line(curves_[count], place.lane, paint(theme().bad), px(1.8F));
}

bool ProofView::update_owner(const Model& model, const FindingPlace& place,
                             const VisibleRange& view, float width) {
  const auto columns = static_cast<size_t>(width);
  if (owner_bytes_.size() != columns) {
    owner_bytes_.assign(columns, 0);
    for (size_t i = 0; i < columns; ++i) {
      const double time = view.begin + view.span() * static_cast<double>(i + 1) / width;
      if (time < 0 || time > model.span_ns() + view.span() / width) continue;
      owner_bytes_[i] =
          owner_bytes(model, place, absolute_ns(model, std::min(time, model.span_ns())));
    }
  }
  return std::any_of(owner_bytes_.begin(), owner_bytes_.end(), [](uint64_t b) { return b != 0; });
}

void ProofView::draw_owner(const Model& model, const FindingPlace& place, const PlotArea& area) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const uint64_t most = *std::max_element(owner_bytes_.begin(), owner_bytes_.end());
  const int64_t time_ns = absolute_ns(model, time_of(model, place));
  const std::string owner = owner_text(model, model.lanes[place.lane], place.owner, time_ns);
  const std::string label = fmt::format("{}, up to {}", owner, size_text(most));
  PlotArea plot = area;
  plot.min.y += ImGui::GetTextLineHeight() + px(4);
  plot.top_bytes = static_cast<double>(most);
  const ImU32 colour = paint(owner_colour(place.owner));
  for (size_t i = 0; i < owner_bytes_.size(); ++i) {
    if (owner_bytes_[i] == 0) continue;
    const float x = area.min.x + static_cast<float>(i);
    draw.AddRectFilled({x, plot.y(static_cast<double>(owner_bytes_[i]))}, {x + 1, area.max.y},
                       colour);
  }
  draw.AddText(area.min + ImVec2(px(4), px(2)), paint(theme().dim), label.c_str());
}

void ProofView::draw_stack(const Model& model, const Finding& finding, const FindingPlace& place,
                           const PlotArea& area, bool patient) {
  const Lane& lane = model.lanes[place.lane];
  StackWish wish;
  wish.model = &model;
  wish.lane = place.lane;
  wish.by = bands_for(model, lane, finding, place);
  wish.categories_known = model.categories_known;
  wish.order = BandOrder::kLife;
  wish.view = area.view;
  wish.width_px = static_cast<int>(area.max.x - area.min.x);
  wish.height_px = static_cast<int>(area.max.y - area.min.y);
  wish.fit = true;
  wish.top_bytes = kAbove;
  wish.dark = theme().dark;
  const std::string line = wish.by == StackBy::kLine ? headline_of(finding.frames) : "";
  wish.search = folded(line);
  stack_.update(wish, patient);
  stack_.draw(area);
  if (line.empty()) return;
  // Colours of lines are not those of categories, which the panels beside it may have.
  const std::string label = "bright: " + fitted_line(line, area.max.x - area.min.x - px(70));
  const ImVec2 at = area.min + ImVec2(px(4), px(2));
  ImGui::GetWindowDrawList()->AddRectFilled(
      at - ImVec2(px(2), 0), at + ImVec2(width_of(label) + px(2), ImGui::GetTextLineHeight()),
      paint(theme().panel, 200), px(3));
  ImGui::GetWindowDrawList()->AddText(at, paint(theme().dim), label.c_str());
}

bool ProofView::draw(const Model& model, const Finding& finding, const FindingPlace& place,
                     bool patient) {
  const float width = std::floor(ImGui::GetContentRegionAvail().x - px(4));
  const Lane& lane = model.lanes[place.lane];
  if (width < px(60) || lane.memory->event_count() < 2) return false;
  const VisibleRange view = view_of(model, place);
  if (!place.owner.empty() && !update_owner(model, place, view, width)) return false;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 min(std::round(at.x), std::round(at.y));
  const bool clicked = ImGui::InvisibleButton("##proof", {width, px(kHeightPx)});
  explain("Go to where this can be seen.");
  const PlotArea area{min, min + ImVec2(width, std::floor(px(kHeightPx))), view};
  if (!ImGui::IsItemVisible()) return false;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  draw.AddRectFilled(area.min, area.max, paint(theme().panel), px(3));
  draw.PushClipRect(area.min, area.max, true);
  if (is_about_ranks(finding)) {
    draw_ranks(model, place, area);
  } else if (!place.owner.empty()) {
    draw_owner(model, place, area);
  } else {
    draw_stack(model, finding, place, area, patient);
  }
  const float x = std::round(area.x(time_of(model, place)));
  draw.AddLine({x, area.min.y}, {x, area.max.y}, paint(place.oom ? theme().bad : theme().cursor),
               px(1.2F));
  draw.PopClipRect();
  return clicked;
}

}  // namespace tidemark::view
