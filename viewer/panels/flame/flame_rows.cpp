#include "viewer/panels/flame/flame_rows.h"

#include <imgui.h>

#include <algorithm>
#include <optional>

#include "analysis/wording.h"
#include "viewer/model/ticks.h"
#include "viewer/widgets/table.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr float kIndentPx = 14;
constexpr uint32_t kMostIndents = 40;  // deep recursion must not push the names off the screen

}  // namespace

void FlameRows::adopt(const FlameTree& tree) {
  const auto count = static_cast<uint32_t>(tree.nodes.size());
  first_child_.assign(count + 1, count);
  // Parents come before their children and in the same order, so one pass is enough.
  for (uint32_t i = count; i-- > 1;) first_child_[tree.nodes[i].parent] = i;
  for (uint32_t i = count; i-- > 0;) {
    first_child_[i] = std::min(first_child_[i], first_child_[i + 1]);
  }
  if (!open_.empty() || count == 0) return;
  // At first the path to the largest child is expanded.
  uint32_t at = 0;
  while (first_child_[at] < first_child_[at + 1]) {
    open_.insert(tree.nodes[at].key);
    at = first_child_[at];
  }
}

void FlameRows::collect(const FlameTree& tree, const FlameMatches& matches) {
  rows_.clear();
  std::vector<uint32_t> todo = {0};
  while (!todo.empty()) {
    const uint32_t at = todo.back();
    todo.pop_back();
    rows_.push_back(at);
    const bool found = matches.any() && matches.inside[at];
    if (!found && !open_.contains(tree.nodes[at].key)) continue;
    for (uint32_t c = first_child_[at + 1]; c-- > first_child_[at];) todo.push_back(c);
  }
}

void FlameRows::draw_name(const FlameNode& node, uint32_t index, const FlameMatches& matches,
                          const std::string& name, Rgb colour) {
  const bool leaf = first_child_[index] == first_child_[index + 1];
  const bool open = open_.contains(node.key) || (matches.any() && matches.inside[index]);
  const auto indent = px(kIndentPx) * static_cast<float>(std::min(node.depth, kMostIndents));
  ImGui::SetCursorPosX(ImGui::GetCursorPosX() + indent);
  fold_mark(leaf ? std::nullopt : std::optional(open));
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  swatch(colour);
  const bool found = !matches.any() || matches.here[index];
  text_in_colour(found ? theme().text : theme().dim,
                 fitted(name, ImGui::GetContentRegionAvail().x));
  if (found && matches.any()) {
    const ImVec2 low = ImGui::GetItemRectMin();
    draw.AddRect(low - ImVec2(px(2), 0), ImGui::GetItemRectMax() + ImVec2(px(2), 0),
                 paint(theme().accent), px(2));
  }
}

void FlameRows::draw(const FlameTree& tree, bool comparing, const FlameMatches& matches,
                     const NameOf& name_of, const ColourOf& colour_of, const Explain& explain) {
  constexpr ImGuiTableFlags kFlags = ImGuiTableFlags_ScrollY | ImGuiTableFlags_RowBg |
                                     ImGuiTableFlags_Resizable | ImGuiTableFlags_BordersInnerV |
                                     ImGuiTableFlags_PadOuterX;
  if (!ImGui::BeginTable("##rows", 4, kFlags)) return;
  const float number = width_of("+00000.0 MiB");
  ImGui::TableSetupColumn(comparing ? "change" : "size", kNumber, number);
  ImGui::TableSetupColumn(comparing ? "alloc + free" : "share", kNumber,
                          comparing ? number : width_of("100.0 %"));
  ImGui::TableSetupColumn("blocks", kNumber, width_of("1,000,000"));
  ImGui::TableSetupColumn("function", ImGuiTableColumnFlags_WidthStretch);
  begin_rows();
  collect(tree, matches);
  const FlameNode& root = tree.nodes.front();
  draw_rows(rows_.size(), [&](size_t row) {
    const uint32_t index = rows_[row];
    const FlameNode& node = tree.nodes[index];
    ImGui::TableNextColumn();
    // A click anywhere in the row expands or collapses it.
    const bool clicked = ImGui::Selectable(
        "##row", false, ImGuiSelectableFlags_SpanAllColumns | ImGuiSelectableFlags_AllowOverlap);
    const bool hovered = ImGui::IsItemHovered();
    ImGui::SameLine();
    text_right(comparing ? signed_size_text(node.net) : size_text(node.bytes));
    number_cell(comparing ? size_text(node.bytes) : percent_text(node.bytes, root.bytes));
    number_cell(grouped(node.count));
    ImGui::TableNextColumn();
    draw_name(node, index, matches, name_of(node), colour_of(node));
    if (hovered) explain(node);
    if (clicked && open_.erase(node.key) == 0) open_.insert(node.key);
  });
  ImGui::EndTable();
}

}  // namespace tidemark::view
