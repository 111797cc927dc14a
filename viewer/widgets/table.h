// Tables with sortable columns. Only the rows on the screen are drawn.
#pragma once

#include <imgui.h>

#include <optional>
#include <string_view>

#include "viewer/model/tables/tables.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

inline constexpr ImGuiTableFlags kTableFlags =
    ImGuiTableFlags_Sortable | ImGuiTableFlags_ScrollY | ImGuiTableFlags_RowBg |
    ImGuiTableFlags_Resizable | ImGuiTableFlags_BordersInnerV | ImGuiTableFlags_Reorderable |
    ImGuiTableFlags_Hideable | ImGuiTableFlags_PadOuterX;
inline constexpr ImGuiTableColumnFlags kNumber =
    ImGuiTableColumnFlags_PreferSortDescending | ImGuiTableColumnFlags_WidthFixed;
inline constexpr ImGuiTableColumnFlags kFirst = kNumber | ImGuiTableColumnFlags_DefaultSort;

inline void number_cell(std::string_view t) {
  ImGui::TableNextColumn();
  text_right(t);
}

// Before the name of a row with others below it, which are shown or not; none: its space.
inline void fold_mark(std::optional<bool> open) {
  const float line = ImGui::GetTextLineHeight();
  const ImVec2 middle = ImGui::GetCursorScreenPos() + ImVec2(px(5), line / 2);
  const float r = px(4);
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  if (open && *open) {
    draw.AddTriangleFilled(middle + ImVec2(-r, -r / 2), middle + ImVec2(r, -r / 2),
                           middle + ImVec2(0, r), paint(theme().dim));
  } else if (open) {
    draw.AddTriangleFilled(middle + ImVec2(-r / 2, -r), middle + ImVec2(r, 0),
                           middle + ImVec2(-r / 2, r), paint(theme().dim));
  }
  ImGui::Dummy({px(12), line});
  ImGui::SameLine(0, 0);
}

inline float table_row_height() {
  return ImGui::GetTextLineHeight() + 2 * ImGui::GetStyle().CellPadding.y;
}

// Calls draw(row) for the rows on the screen.
template <typename Draw>
void draw_rows(size_t count, const Draw& draw) {
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(count));
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      ImGui::TableNextRow();
      ImGui::PushID(i);
      draw(static_cast<size_t>(i));
      ImGui::PopID();
    }
  }
}

inline void read_sort(SortBy& sort) {
  const ImGuiTableSortSpecs* specs = ImGui::TableGetSortSpecs();
  if (specs == nullptr || specs->SpecsCount == 0) return;
  sort.column = specs->Specs[0].ColumnIndex;
  sort.descending = specs->Specs[0].SortDirection == ImGuiSortDirection_Descending;
}

// The headings, aligned like their cells.
inline void begin_rows() {
  ImGui::TableSetupScrollFreeze(0, 1);
  // ImGui reserves space for the arrow in every sortable column.
  const float arrow =
      ImGui::TableGetSortSpecs() == nullptr ? 0 : ImGui::GetFontSize() * 0.65F + px(10);
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  for (int i = 0; i < ImGui::TableGetColumnCount(); ++i) {
    if (!ImGui::TableSetColumnIndex(i)) continue;
    const char* name = ImGui::TableGetColumnName(i);
    if ((ImGui::TableGetColumnFlags(i) & ImGuiTableColumnFlags_PreferSortDescending) != 0) {
      const float room = ImGui::GetContentRegionAvail().x - width_of(name) - arrow;
      if (room > 0) ImGui::SetCursorPosX(ImGui::GetCursorPosX() + room);
    }
    ImGui::PushID(i);
    ImGui::TableHeader(name);
    ImGui::PopID();
  }
}

}  // namespace tidemark::view
