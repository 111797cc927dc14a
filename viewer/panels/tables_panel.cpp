#include "viewer/panels/tables_panel.h"

#include <fmt/format.h>
#include <imgui.h>

#include "export/names.h"
#include "viewer/model/ticks.h"
#include "viewer/panels/block_colour.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr ImGuiTableFlags kTableFlags =
    ImGuiTableFlags_Sortable | ImGuiTableFlags_ScrollY | ImGuiTableFlags_RowBg |
    ImGuiTableFlags_Resizable | ImGuiTableFlags_BordersInnerV | ImGuiTableFlags_Reorderable |
    ImGuiTableFlags_Hideable | ImGuiTableFlags_PadOuterX;
constexpr ImGuiTableColumnFlags kNumber =
    ImGuiTableColumnFlags_PreferSortDescending | ImGuiTableColumnFlags_WidthFixed;
constexpr ImGuiTableColumnFlags kFirst = kNumber | ImGuiTableColumnFlags_DefaultSort;

TableSource source_of(const Model& model, const Moment& moment) {
  const Lane& lane = model.lanes[moment.lane];
  return {*lane.memory, moment.state, moment.layout, model.text_of(lane)};
}

void number_cell(std::string_view t) {
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

void read_sort(SortBy& sort) {
  const ImGuiTableSortSpecs* specs = ImGui::TableGetSortSpecs();
  if (specs == nullptr || specs->SpecsCount == 0) return;
  sort.column = specs->Specs[0].ColumnIndex;
  sort.descending = specs->Specs[0].SortDirection == ImGuiSortDirection_Descending;
}

void begin_rows() {
  ImGui::TableSetupScrollFreeze(0, 1);
  ImGui::TableHeadersRow();
}

}  // namespace

bool TablesPanel::Key::update(const Key& now) {
  if (model == now.model && version == now.version && filter == now.filter &&
      sort.column == now.sort.column && sort.descending == now.sort.descending) {
    return false;
  }
  *this = now;
  return true;
}

bool TablesPanel::refresh(Key& key, const Model& model, const Selection& selection) {
  Key now{&model, selection.version(), selection.search, key.sort};
  read_sort(now.sort);
  return key.update(now);
}

void TablesPanel::draw_allocations(const Model& model, Selection& selection) {
  if (!ImGui::BeginTable("##allocations", 6, kTableFlags)) return;
  ImGui::TableSetupColumn("size", kFirst, px(84));
  ImGui::TableSetupColumn("asked for", kNumber, px(84));
  ImGui::TableSetupColumn("age", kNumber, px(78));
  ImGui::TableSetupColumn("category", ImGuiTableColumnFlags_WidthFixed, px(110));
  ImGui::TableSetupColumn("where", ImGuiTableColumnFlags_WidthStretch);
  ImGui::TableSetupColumn("address", ImGuiTableColumnFlags_WidthFixed, px(120));
  begin_rows();
  const Moment& moment = selection.moment(model);
  const TableSource source = source_of(model, moment);
  if (refresh(allocations_key_, model, selection)) {
    allocations_ = allocation_rows(source, selection.search, allocations_key_.sort);
  }
  rows_shown_ = allocations_.size();
  draw_rows(allocations_.size(), [&](size_t i) {
    const uint32_t row = allocations_[i];
    const Allocation& a = source.memory.allocations[row];
    ImGui::TableNextColumn();
    const bool chosen = selection.allocation && *selection.allocation == row;
    if (ImGui::Selectable("##row", chosen, ImGuiSelectableFlags_SpanAllColumns)) {
      selection.allocation = row;
      selection.detail_wanted = true;
    }
    ImGui::SameLine(0, 0);
    text_right(size_text(a.block_bytes));
    number_cell(size_text(a.requested_bytes));
    number_cell(a.seeded ? "older"
                         : span_text(static_cast<double>(moment.state.time_ns - a.birth_ns)));
    ImGui::TableNextColumn();
    swatch(block_colour(model, selection, moment, a));
    text(category_name(a.category));
    ImGui::TableNextColumn();
    text(source.text.headline(a.stack, a.seeded));
    ImGui::TableNextColumn();
    const WithFont mono(fonts().mono);
    text_dim(fmt::format("{:#x}", a.address));
  });
  ImGui::EndTable();
}

void TablesPanel::draw_stacks(const Model& model, Selection& selection) {
  if (!ImGui::BeginTable("##stacks", 5, kTableFlags)) return;
  ImGui::TableSetupColumn("size", kFirst, px(84));
  ImGui::TableSetupColumn("share", kNumber, px(64));
  ImGui::TableSetupColumn("blocks", kNumber, px(70));
  ImGui::TableSetupColumn("largest", kNumber, px(84));
  ImGui::TableSetupColumn("where", ImGuiTableColumnFlags_WidthStretch);
  begin_rows();
  const Moment& moment = selection.moment(model);
  const TableSource source = source_of(model, moment);
  if (refresh(stacks_key_, model, selection)) {
    stacks_ = stack_rows(source, selection.search, stacks_key_.sort);
  }
  rows_shown_ = stacks_.size();
  draw_rows(stacks_.size(), [&](size_t i) {
    const StackRow& row = stacks_[i];
    ImGui::TableNextColumn();
    ImGui::Selectable("##row", false, ImGuiSelectableFlags_SpanAllColumns);
    if (row.stack != 0 && ImGui::IsItemHovered() && ImGui::BeginTooltip()) {
      for (const std::string& line : source.text.names().stack_text(row.stack)) text(line);
      ImGui::EndTooltip();
    }
    ImGui::SameLine(0, 0);
    text_right(size_text(row.bytes));
    number_cell(percent_text(row.bytes, moment.state.totals.active));
    number_cell(grouped(row.count));
    number_cell(size_text(row.largest));
    ImGui::TableNextColumn();
    swatch(stack_colour(row.stack));
    text(source.text.headline(row.stack, row.before_recording));
  });
  ImGui::EndTable();
}

void TablesPanel::draw_categories(const Model& model, Selection& selection) {
  if (!ImGui::BeginTable("##categories", 4, kTableFlags)) return;
  ImGui::TableSetupColumn("size", kFirst, px(84));
  ImGui::TableSetupColumn("share", kNumber, px(64));
  ImGui::TableSetupColumn("blocks", kNumber, px(70));
  ImGui::TableSetupColumn("category", ImGuiTableColumnFlags_WidthStretch);
  begin_rows();
  const Moment& moment = selection.moment(model);
  if (refresh(categories_key_, model, selection)) {
    categories_ = category_rows(source_of(model, moment), categories_key_.sort);
  }
  rows_shown_ = categories_.size();
  draw_rows(categories_.size(), [&](size_t i) {
    const CategoryRow& row = categories_[i];
    number_cell(size_text(row.bytes));
    number_cell(percent_text(row.bytes, moment.state.totals.active));
    number_cell(grouped(row.count));
    ImGui::TableNextColumn();
    swatch(category_colour(row.category));
    text(category_name(row.category));
  });
  ImGui::EndTable();
}

void TablesPanel::draw_segments(const Model& model, Selection& selection) {
  if (!ImGui::BeginTable("##segments", 8, kTableFlags)) return;
  ImGui::TableSetupColumn("size", kFirst, px(84));
  ImGui::TableSetupColumn("used", kNumber, px(84));
  ImGui::TableSetupColumn("free", kNumber, px(84));
  ImGui::TableSetupColumn("blocks", kNumber, px(64));
  ImGui::TableSetupColumn("holes", kNumber, px(60));
  ImGui::TableSetupColumn("largest hole", kNumber, px(90));
  ImGui::TableSetupColumn("stream", kNumber, px(70));
  ImGui::TableSetupColumn("address", ImGuiTableColumnFlags_WidthStretch);
  begin_rows();
  const Moment& moment = selection.moment(model);
  if (refresh(segments_key_, model, selection)) {
    segments_ = segment_rows(source_of(model, moment), segments_key_.sort);
  }
  rows_shown_ = segments_.size();
  draw_rows(segments_.size(), [&](size_t i) {
    const uint32_t s = segments_[i];
    const SegmentRange& range = moment.state.segments[s];
    const uint64_t used = std::min(moment.layout.used_bytes(s), range.size_bytes);
    number_cell(size_text(range.size_bytes));
    number_cell(size_text(used));
    number_cell(size_text(range.size_bytes - used));
    number_cell(grouped(moment.layout.block_count(s)));
    number_cell(grouped(moment.layout.hole_count(s)));
    number_cell(size_text(moment.layout.largest_hole(s)));
    number_cell(fmt::format("{:#x}", range.stream));
    ImGui::TableNextColumn();
    const WithFont mono(fonts().mono);
    text_dim(fmt::format("{:#x}{}", range.address, range.expandable ? "  expandable" : ""));
  });
  ImGui::EndTable();
}

void TablesPanel::draw(const Model& model, Selection& selection) {
  if (selection.lane >= model.lanes.size()) {
    text_dim("There is no allocator history in this trace.");
    return;
  }
  if (!selection.search.empty()) {
    text_dim(fmt::format("only what contains \"{}\"", selection.search));
  }
  if (!ImGui::BeginTabBar("##tables", ImGuiTabBarFlags_FittingPolicyScroll)) return;
  if (ImGui::BeginTabItem("Stacks")) {
    draw_stacks(model, selection);
    ImGui::EndTabItem();
  }
  if (ImGui::BeginTabItem("Allocations")) {
    draw_allocations(model, selection);
    ImGui::EndTabItem();
  }
  if (ImGui::BeginTabItem("Categories")) {
    draw_categories(model, selection);
    ImGui::EndTabItem();
  }
  if (ImGui::BeginTabItem("Segments")) {
    draw_segments(model, selection);
    ImGui::EndTabItem();
  }
  ImGui::EndTabBar();
}

}  // namespace tidemark::view
