#include "viewer/panels/timeline/activity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "analysis/wording.h"
#include "viewer/model/owner_names.h"
#include "viewer/widgets/drawing.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr float kRowPx = 18;
constexpr uint32_t kRowsShown = 5;
// To find the longest of more than this many in one pixel would take longer than a frame.
constexpr uint32_t kMostCompared = 50'000;

const ActivityRow& row_of(const Model& model, const ActivityRef& ref) {
  return model.activity[ref.process].rows[ref.row];
}

std::string row_name(const ActivityRow& row, bool many_devices) {
  if (row.depth > 0) return "";
  const std::string device = many_devices ? fmt::format("{}: ", row.device) : "";
  if (row.kind == ActivityKind::kCollectives) return device + "NCCL";
  return device + stream_text(row.stream);
}

// The longest in a cell; the first where there are too many to compare.
uint32_t longest(const SpanRow& spans, const SpanCell& cell) {
  uint32_t best = cell.first;
  if (cell.count > kMostCompared) return best;
  for (uint32_t i = cell.first; i < cell.first + cell.count; ++i) {
    if (spans.end_ns(i) - spans.begin_ns(i) > spans.end_ns(best) - spans.begin_ns(best)) best = i;
  }
  return best;
}

std::string name_of(const Model& model, const ActivityRef& ref) {
  const ActivityRow& row = row_of(model, ref);
  const uint32_t item = row.spans.item(ref.index);
  if (row.kind == ActivityKind::kKernels) return model.text[ref.process].kernel(item);
  const ProcessModel& process = model.trace.processes[ref.process];
  const NcclOperation& op = process.nccl[item];
  return fmt::format("{}  {}", process.names.string(op.function), size_text(op.size_bytes));
}

Rgb colour_of(const Model& model, const ActivityRef& ref) {
  const ActivityRow& row = row_of(model, ref);
  const uint32_t item = row.spans.item(ref.index);
  if (row.kind == ActivityKind::kKernels) return stack_colour(item + 1);
  const ProcessModel& process = model.trace.processes[ref.process];
  return owner_colour(process.names.string(process.nccl[item].function));
}

bool never_ran(const Model& model, const ActivityRef& ref) {
  const ActivityRow& row = row_of(model, ref);
  if (row.kind != ActivityKind::kCollectives) return false;
  const ProcessModel& process = model.trace.processes[ref.process];
  return time_of(process.nccl[row.spans.item(ref.index)], model.end_of(process)).never_ran;
}

void explain_cell(const Model& model, const ActivityRef& ref, const SpanCell& cell) {
  if (!ImGui::BeginTooltip()) return;
  const ActivityRow& row = row_of(model, ref);
  const auto length =
      static_cast<double>(row.spans.end_ns(ref.index) - row.spans.begin_ns(ref.index));
  const bool kernels = row.kind == ActivityKind::kKernels;
  ImGui::PushTextWrapPos(px(460));
  if (cell.count > 1) {
    const bool all = !kernels || !meets(model.trace.processes[ref.process].unrecorded,
                                        row.spans.begin_ns(cell.first),
                                        row.spans.end_ns(cell.first + cell.count - 1));
    text(fmt::format("{} in this pixel, {}", counted(cell.count, kernels ? "kernel" : "operation"),
                     all ? fmt::format("{:.0f} % busy", 100 * cell.busy) : "others not recorded"));
    text_dim(cell.count > kMostCompared ? "the first one:" : "the longest one:");
  }
  text(name_of(model, ref));
  const double at = since_start(model, row.spans.begin_ns(ref.index));
  if (never_ran(model, ref)) {
    text_in_colour(theme().bad, "waits for other ranks; never ran");
  } else {
    text_dim(fmt::format("{} from {}", span_text(length), instant_text(at, std::max(length, 1e3))));
  }
  text_dim("click: show details and the memory at that time");
  ImGui::PopTextWrapPos();
  ImGui::EndTooltip();
}

void draw_cell(const Model& model, const Highlights& highlights, const ActivityRef& ref,
               const SpanCell& cell, ImVec2 a, ImVec2 b, const std::string& wanted) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  if (cell.count > 1) {
    // Several in one pixel: the busier, the stronger the colour, but always visible.
    const int alpha = 90 + static_cast<int>(165 * cell.busy);
    draw.AddRectFilled(a, b, paint(theme().accent, wanted.empty() ? alpha : alpha / 3));
    return;
  }
  const bool found =
      wanted.empty() || folded(name_of(model, ref)).find(wanted) != std::string::npos;
  const Rgb colour = colour_of(model, ref);
  if (never_ran(model, ref)) {
    draw.AddRectFilled(a, b, paint(theme().bad, 60));
    draw_hatch(draw, a, b, paint(theme().bad, 200), px(6));
  } else {
    draw.AddRectFilled(a, b, paint(colour, found ? 225 : 60));
  }
  if (found && !wanted.empty()) draw.AddRect(a, b, paint(theme().cursor));
  if (b.x - a.x > px(30)) {
    const Rgb ink = !found ? theme().dim : is_light(colour) ? Rgb{12, 14, 18} : Rgb{255, 255, 255};
    draw_text_in(draw, a, b, paint(ink), name_of(model, ref));
  }
  if (highlights.activity == ref) draw.AddRect(a, b, paint(theme().cursor), 0, 0, px(2));
}

// Where kernels were left out, from the first to the last pixel; what lies in one pixel is drawn as
// one. Returns whether the mouse is on one of them.
bool draw_unrecorded(std::span<const Stretch> stretches, const PlotArea& area,
                     const TimeWindow& window, float top, float bottom, const ImVec2& mouse) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const double px_per_ns = (area.max.x - area.min.x) / (window.end - window.begin);
  const auto at = [&](int64_t time_ns) {
    const double offset =
        (static_cast<double>(time_ns - window.origin_ns) - window.begin) * px_per_ns;
    return area.min.x +
           static_cast<float>(std::clamp<double>(offset, -1, area.max.x - area.min.x + 1.0));
  };
  const auto first_ns = window.origin_ns + static_cast<int64_t>(window.begin);
  auto stretch = std::lower_bound(stretches.begin(), stretches.end(), first_ns,
                                  [](const Stretch& s, int64_t time) { return s.end_ns < time; });
  bool hovered = false;
  while (stretch != stretches.end()) {
    const float begin = at(stretch->begin_ns);
    if (begin > area.max.x) break;
    float end = std::max(at(stretch->end_ns), begin + 1);
    // Bursts of less than a pixel do not interrupt it: their kernels are drawn over it.
    for (++stretch; stretch != stretches.end() && at(stretch->begin_ns) <= end + 1; ++stretch) {
      end = std::max(end, at(stretch->end_ns));
      if (end >= area.max.x) break;
    }
    const ImVec2 a(begin, top);
    const ImVec2 b(end, bottom);
    draw.AddRectFilled(a, b, paint(theme().dim, 30));
    draw_hatch(draw, a, b, paint(theme().dim, 90), px(7));
    hovered |= mouse.y >= top && mouse.y < bottom && mouse.x >= begin && mouse.x < end;
    if (end >= area.max.x) break;
  }
  return hovered;
}

void explain_unrecorded(const ProcessModel& process) {
  if (!ImGui::BeginTooltip()) return;
  text("kernels not recorded");
  const std::string_view budget = process.setting("overhead");
  text_dim(fmt::format("left out so that recording costs less than {} of the time",
                       budget.empty() ? "its share" : budget));
  ImGui::EndTooltip();
}

}  // namespace

float ActivityRows::height() const {
  if (shown.empty()) return 0;
  return static_cast<float>(shown.size()) * px(kRowPx) + px(4) +
         (hidden > 0 ? ImGui::GetTextLineHeight() + px(2) : 0);
}

ActivityRows activity_rows(const Model& model, const Cursor& cursor, uint32_t process,
                           const TimelineOptions& options) {
  ActivityRows rows;
  if (!options.activity || process >= model.activity.size()) return rows;
  // Only for the selected rank.
  const bool chosen =
      cursor.lane() < model.lanes.size() && model.lanes[cursor.lane()].process == process;
  if (!chosen) return rows;
  const std::vector<ActivityRow>& all = model.activity[process].rows;
  for (uint32_t i = 0; i < all.size(); ++i) {
    if (options.all_streams || rows.shown.size() < kRowsShown) {
      rows.shown.push_back(i);
    } else {
      ++rows.hidden;
    }
  }
  return rows;
}

std::optional<ActivityRef> draw_activity(const Model& model, const Highlights& highlights,
                                         uint32_t process, const ActivityRows& rows,
                                         const PlotArea& area, bool hovered) {
  std::optional<ActivityRef> under;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const Activity& activity = model.activity[process];
  const bool many_devices =
      std::any_of(activity.rows.begin(), activity.rows.end(),
                  [&](const ActivityRow& r) { return r.device != activity.rows.front().device; });
  const std::string wanted = folded(highlights.search);
  const TimeWindow window{model.trace.start_ns, area.view.begin, area.view.end};
  const ImVec2 mouse = ImGui::GetMousePos();
  const auto columns = std::max(2U, static_cast<uint32_t>(area.max.x - area.min.x));
  for (size_t r = 0; r < rows.shown.size(); ++r) {
    const ActivityRow& row = activity.rows[rows.shown[r]];
    const float top = area.min.y + px(2) + static_cast<float>(r) * px(kRowPx);
    const float bottom = top + px(kRowPx - 2);
    const std::string name = row_name(row, many_devices);
    draw.AddText({std::round(area.min.x - width_of(name) - px(8)),
                  std::round(top + (bottom - top - ImGui::GetTextLineHeight()) / 2)},
                 paint(theme().dim), name.c_str());
    draw.AddRectFilled({area.min.x, top}, {area.max.x, bottom}, paint(theme().raised, 90), px(2));
    draw.PushClipRect({area.min.x, top}, {area.max.x, bottom}, true);
    const ProcessModel& ran = model.trace.processes[process];
    const bool on_unrecorded = row.kind == ActivityKind::kKernels &&
                               draw_unrecorded(ran.unrecorded, area, window, top, bottom, mouse);
    const auto under_before = under;
    for (const SpanCell& cell : row.spans.cells(window, columns)) {
      const ImVec2 a(area.min.x + cell.begin_px, top);
      const ImVec2 b(area.min.x + std::max(cell.end_px, cell.begin_px + 1), bottom);
      ActivityRef ref{process, rows.shown[r], cell.first};
      draw_cell(model, highlights, ref, cell, a, b, wanted);
      if (!hovered || mouse.y < top || mouse.y >= bottom || mouse.x < a.x || mouse.x >= b.x) {
        continue;
      }
      ref.index = longest(row.spans, cell);
      under = ref;
      explain_cell(model, ref, cell);
    }
    draw.PopClipRect();
    if (hovered && on_unrecorded && under == under_before) explain_unrecorded(ran);
  }
  if (rows.hidden > 0) {
    const std::string more =
        fmt::format("and {}: select \"all streams\"", counted(rows.hidden, "more row"));
    draw.AddText({area.min.x, area.max.y - ImGui::GetTextLineHeight() - px(1)}, paint(theme().dim),
                 more.c_str());
  }
  return under;
}

}  // namespace tidemark::view
