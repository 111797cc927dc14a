// Tables with sortable columns, of which only the rows on the screen are drawn.
#pragma once

#include <imgui.h>

#include <string_view>

#include "viewer/model/tables.h"
#include "viewer/widgets/text.h"

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

inline void begin_rows() {
  ImGui::TableSetupScrollFreeze(0, 1);
  ImGui::TableHeadersRow();
}

}  // namespace tidemark::view
