#include "viewer/panels/tables/actions_table.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "analysis/wording.h"
#include "viewer/model/ticks.h"
#include "viewer/widgets/table.h"

namespace tidemark::view {

namespace {

constexpr uint32_t kAround = 500;

Rgb action_colour(const ActionRow& row) {
  if (row.failed) return theme().bad;
  const bool segment = row.change == Change::kGrow || row.change == Change::kShrink;
  if (segment) return theme().reserved;
  return row.change == Change::kBirth ? theme().allocated : theme().dim;
}

}  // namespace

void ActionsTable::draw_row(const Model& model, Selection& selection, const ActionRow& row) {
  const Lane& lane = model.lanes[selection.cursor.lane()];
  ImGui::TableNextColumn();
  const bool here = row.event == selection.cursor.event() && !row.failed;
  if (ImGui::Selectable("##row", here, ImGuiSelectableFlags_SpanAllColumns)) {
    selection.set_event(model, selection.cursor.lane(), row.event);
    const Change change = lane.memory->change[row.event];
    const bool block = change != Change::kGrow && change != Change::kShrink;
    if (block) selection.choose_allocation(lane.memory->subject[row.event]);
    selection.requests.details = false;  // the list stays where it is
    selection.reveal_cursor(model);
    scroll_frames_ = 0;
    version_ = selection.version();
  }
  ImGui::SameLine(0, 0);
  text_right(grouped(lane.memory->event_number(row.event)));
  number_cell(instant_text(since_start(model, row.time_ns), 1e6));
  ImGui::TableNextColumn();
  swatch(action_colour(row));
  text(action_name(row));
  number_cell(size_text(row.bytes));
  ImGui::TableNextColumn();
  text(fitted(model.text_of(lane).headline(row.stack, row.seeded),
              ImGui::GetContentRegionAvail().x));
}

size_t ActionsTable::draw(const Model& model, Selection& selection) {
  const Lane& lane = model.lanes[selection.cursor.lane()];
  if (model_ != &model || version_ != selection.version()) {
    model_ = &model;
    version_ = selection.version();
    rows_ = action_rows(*lane.memory, selection.cursor.event(), kAround);
    scroll_frames_ = 2;
  }
  text_dim(fmt::format("of {}, around the cursor; click one or press left and right to step",
                       counted(lane.memory->event_count() - lane.memory->seed_events, "event")));
  constexpr ImGuiTableFlags kFlags = kTableFlags & ~ImGuiTableFlags_Sortable;
  if (!ImGui::BeginTable("##actions", 5, kFlags)) return 0;
  ImGui::TableSetupColumn("event", kNumber, px(84));
  ImGui::TableSetupColumn("time", kNumber, px(120));
  ImGui::TableSetupColumn("action", ImGuiTableColumnFlags_WidthFixed, px(140));
  ImGui::TableSetupColumn("size", kNumber, px(84));
  ImGui::TableSetupColumn("allocated by", ImGuiTableColumnFlags_WidthStretch);
  begin_rows();
  if (scroll_frames_ > 0) {
    --scroll_frames_;
    const auto at = std::find_if(rows_.begin(), rows_.end(), [&](const ActionRow& row) {
      return row.event == selection.cursor.event();
    });
    const float height = ImGui::GetTextLineHeight() + 2 * ImGui::GetStyle().CellPadding.y;
    ImGui::SetScrollY(std::max(
        0.0F, static_cast<float>(at - rows_.begin()) * height - ImGui::GetWindowHeight() / 2));
  }
  draw_rows(rows_.size(), [&](size_t i) { draw_row(model, selection, ActionRow(rows_[i])); });
  ImGui::EndTable();
  return rows_.size();
}

}  // namespace tidemark::view
