#include "viewer/panels/tables/actions_table.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "analysis/wording.h"
#include "viewer/model/owner_names.h"
#include "viewer/model/ticks.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/key_table.h"
#include "viewer/widgets/table.h"

namespace tidemark::view {

namespace {

constexpr uint32_t kAround = 500;
// A narrower panel does not have these columns.
constexpr float kStreamPx = 960;
constexpr float kAddressPx = 820;

Rgb action_colour(const ActionRow& row) {
  if (row.failed) return theme().bad;
  const bool segment = row.change == Change::kGrow || row.change == Change::kShrink;
  if (segment) return theme().reserved;
  return row.change == Change::kBirth ? theme().allocated : theme().dim;
}

// That of the event; segments cannot be chosen.
void choose_block(const AllocationHistory& memory, uint32_t event, Selection& selection) {
  const Change change = memory.change[event];
  if (change == Change::kGrow || change == Change::kShrink) return;
  selection.choose_allocation(memory.subject[event]);
  selection.requests.details = false;  // the list stays where it is
}

bool steps_by_key() {
  return pressed(Command::kEventBack) || pressed(Command::kEventOn) ||
         pressed(Command::kEventsBack) || pressed(Command::kEventsOn);
}

}  // namespace

void ActionsTable::draw_row(const Model& model, Selection& selection, const ActionRow& row,
                            bool here) {
  const Lane& lane = model.lanes[selection.cursor.lane()];
  ImGui::TableNextColumn();
  if (ImGui::Selectable("##row", here, ImGuiSelectableFlags_SpanAllColumns)) {
    selection.set_event(model, selection.cursor.lane(), row.event);
    choose_block(*lane.memory, row.event, selection);
    selection.reveal_cursor(model);
    scroll_frames_ = 0;
    version_ = selection.version();
  }
  ImGui::SameLine(0, 0);
  // An error is no event: it has the state after the one before it.
  if (!row.failed) text_right(grouped(lane.memory->event_number(row.event)));
  number_cell(instant_text(since_start(model, row.time_ns), 1e6));
  ImGui::TableNextColumn();
  swatch(action_colour(row));
  text(action_name(row));
  number_cell(size_text(row.bytes));
  ImGui::TableNextColumn();
  text(fitted(model.text_of(lane).headline(row.stack, row.seeded),
              ImGui::GetContentRegionAvail().x));
  ImGui::TableNextColumn();
  text_dim(fitted(stream_text(row.stream, row.pool), ImGui::GetContentRegionAvail().x));
  ImGui::TableNextColumn();
  const WithFont mono(fonts().mono);
  if (row.address != 0) text_dim(fmt::format("{:#x}", row.address));
}

size_t ActionsTable::draw(const Model& model, Selection& selection) {
  const Lane& lane = model.lanes[selection.cursor.lane()];
  if (model_ != &model || version_ != selection.version()) {
    model_ = &model;
    version_ = selection.version();
    rows_ = action_rows(*lane.memory, selection.cursor.event(), kAround);
    scroll_frames_ = 2;
  }
  // Keys that step through the list do what a click in it does.
  if (event_ != selection.cursor.event() && steps_by_key()) {
    choose_block(*lane.memory, selection.cursor.event(), selection);
  }
  event_ = selection.cursor.event();
  text_dim(fmt::format("of {}, around the cursor; click one or press left and right to step",
                       counted(lane.memory->event_count() - lane.memory->seed_events, "event")));
  constexpr ImGuiTableFlags kFlags = kTableFlags & ~ImGuiTableFlags_Sortable;
  const float room = ImGui::GetContentRegionAvail().x;
  const auto if_room = [&](float least) {
    return ImGuiTableColumnFlags_WidthFixed |
           (room < px(least) ? ImGuiTableColumnFlags_Disabled : ImGuiTableColumnFlags_None);
  };
  if (!ImGui::BeginTable("##actions", 7, kFlags)) return 0;
  ImGui::TableSetupColumn("event", kNumber, px(84));
  ImGui::TableSetupColumn("time", kNumber, px(120));
  ImGui::TableSetupColumn("action", ImGuiTableColumnFlags_WidthFixed, px(140));
  ImGui::TableSetupColumn("size", kNumber, px(84));
  ImGui::TableSetupColumn("by", ImGuiTableColumnFlags_WidthStretch);
  ImGui::TableSetupColumn("stream", if_room(kStreamPx), px(130));
  ImGui::TableSetupColumn("address", if_room(kAddressPx), px(120));
  begin_rows();
  const size_t here = action_at(rows_, selection.cursor.event(), selection.cursor.time_ns(model));
  if (scroll_frames_ > 0) {
    --scroll_frames_;
    ImGui::SetScrollY(std::max(
        0.0F, static_cast<float>(here) * table_row_height() - ImGui::GetWindowHeight() / 2));
  }
  draw_rows(rows_.size(),
            [&](size_t i) { draw_row(model, selection, ActionRow(rows_[i]), i == here); });
  ImGui::EndTable();
  return rows_.size();
}

}  // namespace tidemark::view
