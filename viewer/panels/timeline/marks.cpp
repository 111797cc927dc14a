#include "viewer/panels/timeline/marks.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "analysis/wording.h"
#include "viewer/widgets/drawing.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr size_t kMarkRows = 4;  // deeper annotations are not drawn
constexpr float kMarkRowPx = 19;
// With more lanes than this, only the selected process shows its annotations.
constexpr size_t kMarksOfAll = 2;

void mark_tooltip(const Model& model, uint32_t process, const MarkRange& range) {
  if (!ImGui::BeginTooltip()) return;
  text(model.trace.processes[process].names.string(range.name));
  const double begin = since_start(model, range.begin_ns);
  const auto length = static_cast<double>(range.end_ns - range.begin_ns);
  text_dim("from " + instant_text(begin, std::max(length, 1e3)));
  if (range.open) {
    text_dim("its end was not recorded");
  } else if (length > 0) {
    text_dim("for " + span_text(length));
  }
  text_dim("click: show its memory");
  ImGui::EndTooltip();
}

}  // namespace

float mark_rows_height(const Model& model, const Cursor& cursor, uint32_t process) {
  // With many ranks only for the selected one.
  const bool chosen =
      cursor.lane() < model.lanes.size() && model.lanes[cursor.lane()].process == process;
  if (!chosen && model.lanes.size() > kMarksOfAll) return 0;
  const MarkLanes& marks = model.marks[process];
  const auto rows = static_cast<float>(std::min(marks.rows.size(), kMarkRows));
  return rows == 0 ? 0 : rows * px(kMarkRowPx) + px(6);
}

const MarkRange* draw_marks(const Model& model, const std::string& search, uint32_t process,
                            const PlotArea& area) {
  const MarkRange* hovered = nullptr;
  const MarkLanes& marks = model.marks[process];
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const std::string wanted = folded(search);
  const int64_t start = model.trace.start_ns;
  const Dictionary& names = model.trace.processes[process].names;
  static constexpr std::string_view kName = "ranges";
  draw.AddText({std::round(area.min.x - width_of(kName) - px(8)), area.min.y + px(2)},
               paint(theme().dim), kName.data());
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
      const bool found = !wanted.empty() && folded(name).find(wanted) != std::string::npos;
      const Rgb colour = stack_colour(it->name + 1);
      const ImVec2 a(std::max(left, area.min.x - 2), top);
      const ImVec2 b(std::min(right, area.max.x + 2), bottom);
      draw.AddRectFilled(a, b, paint(colour, found ? 255 : wanted.empty() ? 150 : 60), px(2));
      if (found) draw.AddRect(a, b, paint(theme().cursor), px(2));
      draw_text_in(draw, a, b, paint(theme().text), name);
      if (ImGui::IsWindowHovered() && ImGui::IsMouseHoveringRect(a, b)) {
        mark_tooltip(model, process, *it);
        hovered = &*it;
      }
      // Skips ranges that are too narrow to see next to this one.
      it = first_after(std::next(it), area.time(right));
    }
  }
  ImGui::PopClipRect();
  return hovered;
}

}  // namespace tidemark::view
