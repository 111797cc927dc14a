#include "viewer/panels/tables/tables_panel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <imgui.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "analysis/insight/module_shares.h"
#include "analysis/wording.h"
#include "viewer/model/owner_names.h"
#include "viewer/model/tables/category_text.h"
#include "viewer/model/tables/owner_text.h"
#include "viewer/model/ticks.h"
#include "viewer/widgets/block_colour.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/table.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

// More than this many blocks are filtered and sorted in the background.
constexpr size_t kManyBlocks = 20'000;
constexpr float kWideSegmentsPx = 820;

constexpr const char* kLastingWay = "all-steps";

constexpr const char* kTabs[] = {"Stacks",   "Allocations", "Categories", "Modules",    "Owners",
                                 "Segments", "Actions",     "Kernels",    "Collectives"};

TableSource source_of(const Model& model, const Moment& moment) {
  const Lane& lane = model.lanes[moment.lane];
  return {*lane.memory, moment.state, moment.layout, model.text_of(lane)};
}

// Keeps alive what a table is made from, until it is made.
struct Held {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Moment> moment;

  Held(const Model& of, Selection& selection)
      : model(of.shared_from_this()), moment(selection.cursor.share_moment(of)) {}

  const Lane& lane() const { return model->lanes[moment->lane]; }
  // make(source): with the model's names, which belong to the drawing thread and keep their texts,
  // or with names of its own.
  template <typename Make>
  auto rows(bool drawing_thread, const Make& make) const {
    const auto source = [this](const FrameText& names) {
      return TableSource{*lane().memory, moment->state, moment->layout, names};
    };
    if (drawing_thread) return make(source(model->text_of(lane())));
    return make(
        source(FrameText(model->process_of(lane()).names, model->text_of(lane()).no_stack())));
  }
};

void choose_largest(const Model& model, Selection& selection, const StackRow& row) {
  const Moment& moment = selection.cursor.moment(model);
  const auto& all = model.lanes[moment.lane].memory->allocations;
  std::optional<uint32_t> largest;
  for (const uint32_t i : moment.state.live) {
    if (moment.state.is_pending(*model.lanes[moment.lane].memory, i)) continue;
    if (all[i].stack != row.stack || (row.stack == 0 && all[i].seeded != row.before_recording)) {
      continue;
    }
    if (!largest || all[i].block_bytes > all[*largest].block_bytes) largest = i;
  }
  if (largest) selection.choose_allocation(*largest);
}

void copy_stack(const Dictionary& names, uint32_t stack) {
  std::string all;
  for (const std::string& line : names.stack_text(stack)) all += line + "\n";
  ImGui::SetClipboardText(all.c_str());
}

}  // namespace

void TablesPanel::set_wake(const std::function<void()>& wake) {
  allocations_.set_wake(wake);
  stacks_.set_wake(wake);
  modules_.set_wake(wake);
  activity_.set_wake(wake);
}

bool TablesPanel::busy() const {
  return allocations_.busy() || stacks_.busy() || modules_.busy() || activity_.busy();
}

std::vector<std::string> TablesPanel::ways() {
  std::vector<std::string> words;
  for (const char* title : kTabs) words.push_back(folded(title));
  words.emplace_back(kLastingWay);
  return words;
}

bool TablesPanel::show_as(std::string_view name) {
  if (name == kLastingWay) {
    lasting_ = true;
    wanted_ = "Allocations";
    return true;
  }
  for (const char* title : kTabs) {
    if (folded(title) != name) continue;
    wanted_ = title;
    return true;
  }
  return false;
}

bool TablesPanel::begin_tab(const char* title) {
  const bool wanted = wanted_ != nullptr && std::string_view(wanted_) == title;
  if (wanted) wanted_ = nullptr;
  return ImGui::BeginTabItem(title, nullptr, wanted ? ImGuiTabItemFlags_SetSelected : 0);
}

bool TablesPanel::Key::update(const Key& now) {
  if (model == now.model && version == now.version && filter == now.filter &&
      sort.column == now.sort.column && sort.descending == now.sort.descending &&
      through == now.through && opened == now.opened) {
    return false;
  }
  *this = now;
  return true;
}

bool TablesPanel::refresh(Key& key, const Model& model, const Selection& selection,
                          const std::optional<AllSteps>& through,
                          const std::set<std::string>& opened) {
  Key now{&model, selection.version(), selection.highlights.search, key.sort, through, opened};
  read_sort(now.sort);
  return key.update(now);
}

std::optional<AllSteps> TablesPanel::draw_lasting_choice(const Model& model, const Lane& lane) {
  const Steps& steps = model.steps_of(lane);
  const std::optional<AllSteps> through = all_steps(*lane.memory, steps);
  if (!through) {
    if (lasting_) text_in_colour(theme().warning, "The trace does not have two steps.");
    return std::nullopt;
  }
  ImGui::Checkbox("alive through all steps", &lasting_);
  explain(
      "The blocks that are in use from the end of the first step to the end of the last one, "
      "wherever the cursor is. What the first step frees again is left out.");
  if (!lasting_) return std::nullopt;
  const AllocationRows& made = allocations_.value();
  if (made.model == &model && allocations_key_.through == through) {
    flow(px(420));
    text_dim(fmt::format("{}, {}, from {} to {}", counted(made.rows.size(), "block"),
                         size_text(made.bytes), steps.name(0), steps.name(steps.count() - 1)));
    std::vector<std::string> sums;
    for (const CategoryRow& row : made.categories) {
      sums.push_back(fmt::format("{} {} in {}", category_text(model, lane, row.category),
                                 size_text(row.bytes), counted(row.count, "block")));
    }
    text_wrapped(fmt::format("{}", fmt::join(sums, ", ")));
  }
  return through;
}

void TablesPanel::wish_allocations(const Model& model, Selection& selection, size_t blocks) {
  const bool few = blocks < kManyBlocks;
  allocations_.wish(
      [held = Held(model, selection), filter = selection.highlights.search,
       sort = allocations_key_.sort, through = allocations_key_.through, few] {
        const AllocationHistory& memory = *held.lane().memory;
        AllocationRows made;
        made.model = held.model.get();
        made.lane = held.moment->lane;
        made.rows = held.rows(few, [&](const TableSource& from) {
          return through ? allocation_rows(from, blocks_through(memory, *through), filter, sort)
                         : allocation_rows(from, filter, sort);
        });
        made.categories = category_rows(memory, made.rows);
        for (const CategoryRow& row : made.categories) made.bytes += row.bytes;
        return made;
      },
      few);
}

void TablesPanel::draw_allocations(const Model& model, Selection& selection) {
  const std::optional<AllSteps> through =
      draw_lasting_choice(model, model.lanes[selection.cursor.lane()]);
  const AllocationRows& last = allocations_.value();
  if (!through && !selection.highlights.search.empty() && last.model == &model) {
    text_dim(fmt::format("{} found at the cursor, {}", counted(last.rows.size(), "block"),
                         size_text(last.bytes)));
  }
  if (!ImGui::BeginTable("##allocations", 6, kTableFlags)) return;
  ImGui::TableSetupColumn("size", kFirst, px(84));
  ImGui::TableSetupColumn("requested", kNumber, px(84));
  ImGui::TableSetupColumn("age", kNumber, px(78));
  ImGui::TableSetupColumn("category", ImGuiTableColumnFlags_WidthFixed, px(160));
  ImGui::TableSetupColumn("where", ImGuiTableColumnFlags_WidthStretch);
  ImGui::TableSetupColumn("address", ImGuiTableColumnFlags_WidthFixed, px(120));
  begin_rows();
  const Moment& moment = selection.cursor.moment(model);
  const TableSource source = source_of(model, moment);
  if (refresh(allocations_key_, model, selection, through)) {
    wish_allocations(model, selection,
                     through ? source.memory.allocations.size() : moment.state.live.size());
  }
  const AllocationRows& made = allocations_.value();
  const bool current = made.model == &model && made.lane == moment.lane;
  const std::vector<uint32_t> none;
  const std::vector<uint32_t>& rows = current ? made.rows : none;
  rows_shown_ = rows.size();
  allocations_scroll_.follow(selection.highlights.allocation, table_row_height(),
                             table_row_height(), [&](uint64_t chosen) -> std::optional<size_t> {
                               const auto row = std::find(rows.begin(), rows.end(), chosen);
                               if (row == rows.end()) return std::nullopt;
                               return static_cast<size_t>(row - rows.begin());
                             });
  draw_rows(rows.size(), [&](size_t i) {
    const uint32_t row = rows[i];
    const Allocation& a = source.memory.allocations[row];
    const Cursor& cursor = selection.cursor;
    ImGui::TableNextColumn();
    const bool chosen = selection.highlights.allocation && *selection.highlights.allocation == row;
    if (ImGui::Selectable("##row", chosen, ImGuiSelectableFlags_SpanAllColumns)) {
      selection.choose_allocation(row);
    }
    ImGui::SameLine(0, 0);
    text_right(size_text(a.block_bytes));
    number_cell(a.requested_bytes == 0 ? "" : size_text(a.requested_bytes));
    const std::optional<int64_t> age_ns = cursor.age_ns(model, a);
    number_cell(age_ns ? span_text(static_cast<double>(*age_ns)) : "older");
    ImGui::TableNextColumn();
    const bool pending = moment.state.is_pending(source.memory, row);
    swatch(pending ? theme().pending : block_colour(model, selection.colouring.by, cursor, a));
    const std::string kind = pending ? std::string(kPendingText)
                                     : category_text(model, model.lanes[moment.lane], a.category);
    text(fitted(kind, ImGui::GetContentRegionAvail().x));
    if (pending) explain("Freed by the program, but another stream may still be using it.");
    ImGui::TableNextColumn();
    text(fitted(source.text.headline(a.stack, a.seeded), ImGui::GetContentRegionAvail().x));
    ImGui::TableNextColumn();
    const WithFont mono(fonts().mono);
    text_dim(fmt::format("{:#x}", a.address));
  });
  ImGui::EndTable();
}

void TablesPanel::wish_stacks(const Model& model, Selection& selection) {
  const Moment& moment = selection.cursor.moment(model);
  const bool few = moment.state.live.size() < kManyBlocks;
  const Lane& lane = model.lanes[moment.lane];
  const Dictionary& names = model.process_of(lane).names;
  if (!few && (stack_names_ == nullptr || &stack_names_->names() != &names)) {
    stack_names_ = std::make_shared<const FrameText>(names, model.text_of(lane).no_stack());
  }
  stacks_.wish(
      [held = Held(model, selection), names = stack_names_, filter = selection.highlights.search,
       sort = stacks_key_.sort, opened = opened_, few] {
        const Lane& of = held.lane();
        const FrameText& text = few ? held.model->text_of(of) : *names;
        const TableSource source{*of.memory, held.moment->state, held.moment->layout, text};
        return StackRows{held.model.get(), held.moment->lane,
                         line_rows(source, filter, sort, opened)};
      },
      few);
}

void TablesPanel::draw_line(const Model& model, Selection& selection, const LineRow& row) {
  const Moment& moment = selection.cursor.moment(model);
  const FrameText& names = source_of(model, moment).text;
  const uint32_t stack = row.sum.stack;
  const bool several = row.stacks > 1;
  ImGui::TableNextColumn();
  if (ImGui::Selectable("##row", false, ImGuiSelectableFlags_SpanAllColumns)) {
    if (!several) {
      choose_largest(model, selection, row.sum);
    } else if (opened_.erase(row.line) == 0) {
      opened_.insert(row.line);
    }
  }
  if (stack != 0 && ImGui::BeginPopupContextItem("##menu")) {
    if (ImGui::MenuItem("Copy the stack")) copy_stack(names.names(), stack);
    ImGui::EndPopup();
  }
  if (stack != 0 && ImGui::IsItemHovered() && ImGui::BeginTooltip()) {
    if (several) {
      text(fmt::format("{} lead to this line; that of its largest block:",
                       counted(row.stacks, "call stack")));
    }
    for (const std::string& line : names.names().stack_text(stack)) text(line);
    text_dim(several ? "click: list its stacks   right-click: copy this one"
                     : "click: show its largest block   right-click: copy the stack");
    ImGui::EndTooltip();
  }
  ImGui::SameLine(0, 0);
  text_right(size_text(row.sum.bytes));
  number_cell(percent_text(row.sum.bytes, moment.state.totals.allocated));
  number_cell(grouped(row.sum.count));
  number_cell(size_text(row.sum.largest));
  ImGui::TableNextColumn();
  if (row.stacks == 0) ImGui::SetCursorPosX(ImGui::GetCursorPosX() + px(16));
  fold_mark(several ? std::optional(opened_.contains(row.line)) : std::nullopt);
  swatch(stack_colour(stack));
  if (row.stacks == 0) {
    text_dim(fitted_ends(row.text, ImGui::GetContentRegionAvail().x));
    return;
  }
  const std::string count = several ? "   " + counted(row.stacks, "call stack") : "";
  text(fitted(row.text, ImGui::GetContentRegionAvail().x - width_of(count)));
  if (!several) return;
  ImGui::SameLine(0, 0);
  text_dim(count);
}

void TablesPanel::draw_stacks(const Model& model, Selection& selection) {
  if (!ImGui::BeginTable("##stacks", 5, kTableFlags)) return;
  ImGui::TableSetupColumn("size", kFirst, px(84));
  ImGui::TableSetupColumn("share", kNumber, px(64));
  ImGui::TableSetupColumn("blocks", kNumber, px(70));
  ImGui::TableSetupColumn("largest", kNumber, px(84));
  ImGui::TableSetupColumn("where", ImGuiTableColumnFlags_WidthStretch);
  begin_rows();
  if (refresh(stacks_key_, model, selection, std::nullopt, opened_)) wish_stacks(model, selection);
  stacks_.poll();
  const StackRows& made = stacks_.value();
  const bool current = made.model == &model && made.lane == selection.cursor.moment(model).lane;
  rows_shown_ = current ? made.rows.size() : 0;
  draw_rows(rows_shown_, [&](size_t i) { draw_line(model, selection, made.rows[i]); });
  ImGui::EndTable();
}

void TablesPanel::draw_categories(const Model& model, Selection& selection) {
  if (!ImGui::BeginTable("##categories", 4, kTableFlags)) return;
  ImGui::TableSetupColumn("size", kFirst, px(84));
  ImGui::TableSetupColumn("share", kNumber, px(64));
  ImGui::TableSetupColumn("blocks", kNumber, px(70));
  ImGui::TableSetupColumn("category", ImGuiTableColumnFlags_WidthStretch);
  begin_rows();
  const Moment& moment = selection.cursor.moment(model);
  if (refresh(categories_key_, model, selection)) {
    categories_ = moment.live.categories;
    sort_categories(categories_, categories_key_.sort);
  }
  rows_shown_ = categories_.size();
  draw_rows(categories_.size(), [&](size_t i) {
    const CategoryRow& row = categories_[i];
    number_cell(size_text(row.bytes));
    number_cell(percent_text(row.bytes, moment.state.totals.allocated));
    number_cell(grouped(row.count));
    ImGui::TableNextColumn();
    swatch(category_colour(row.category));
    text(category_text(model, model.lanes[moment.lane], row.category));
  });
  ImGui::EndTable();
}

void TablesPanel::draw_modules(const Model& model, Selection& selection) {
  const Moment& moment = selection.cursor.moment(model);
  const Lane& lane = model.lanes[moment.lane];
  if (model.process_of(lane).names.nn_module_count() == 0) {
    rows_shown_ = 0;
    text_dim("This trace knows no nn.Modules.");
    return;
  }
  if (!ImGui::BeginTable("##modules", 8, kTableFlags & ~ImGuiTableFlags_Sortable)) return;
  for (const char* title :
       {"size", "share", "weights", "gradients", "optimizer", "kept", "transient"}) {
    ImGui::TableSetupColumn(title, kNumber, px(84));
  }
  ImGui::TableSetupColumn("module", ImGuiTableColumnFlags_WidthStretch);
  begin_rows();
  if (refresh(modules_key_, model, selection)) {
    const bool few = moment.state.live.size() < kManyBlocks;
    modules_.wish(
        [held = Held(model, selection), filter = selection.highlights.search] {
          const ProcessModel& process = held.model->process_of(held.lane());
          return ModuleRows{held.model.get(), held.moment->lane,
                            module_rows(process, *held.lane().memory, held.moment->state, filter)};
        },
        few);
  }
  modules_.poll();
  const ModuleRows& made = modules_.value();
  const bool current = made.model == &model && made.lane == moment.lane;
  rows_shown_ = current ? made.rows.size() : 0;
  draw_rows(rows_shown_, [&](size_t i) {
    const ModuleRow& row = made.rows[i];
    const uint64_t bytes = std::accumulate(row.amounts.begin(), row.amounts.end(), uint64_t{0});
    number_cell(size_text(bytes));
    number_cell(percent_text(bytes, moment.state.totals.allocated));
    for (const uint64_t amount : row.amounts) number_cell(amount == 0 ? "" : size_text(amount));
    ImGui::TableNextColumn();
    std::string name(2 * size_t{row.depth}, ' ');
    name += row.path.empty() ? std::string("no module") : std::string(name_in_parent(made.rows, i));
    if (row.modules.size() > 1) name += fmt::format("   {} modules", row.modules.size());
    text(fitted(name, ImGui::GetContentRegionAvail().x));
    explain(row.path.c_str());
  });
  ImGui::EndTable();
}

void TablesPanel::draw_owners(const Model& model, Selection& selection) {
  if (!ImGui::BeginTable("##owners", 4, kTableFlags)) return;
  ImGui::TableSetupColumn("size", kFirst, px(84));
  ImGui::TableSetupColumn("share", kNumber, px(64));
  ImGui::TableSetupColumn("peak", kNumber, px(84));
  ImGui::TableSetupColumn("owner", ImGuiTableColumnFlags_WidthStretch);
  begin_rows();
  const Moment& moment = selection.cursor.moment(model);
  const Lane& lane = model.lanes[moment.lane];
  if (refresh(owners_key_, model, selection)) {
    owners_.clear();
    const MemoryTotals* exact = lane.of_driver ? nullptr : &moment.state.totals;
    for (const LedgerLine& line : lane.ledger->at(selection.cursor.time_ns(model), exact).lines) {
      OwnerRow row{line.owner, line.bytes, 0};
      for (const OwnerCurve& c : lane.owners) {
        if (c.name == line.owner) row.peak_bytes = c.bytes.peak();
      }
      owners_.push_back(row);
    }
    sort_owners(owners_, owners_key_.sort);
  }
  rows_shown_ = owners_.size();
  int64_t whole = 0;
  for (const OwnerRow& row : owners_) whole += std::max<int64_t>(row.bytes, 0);
  draw_rows(owners_.size(), [&](size_t i) {
    const OwnerRow& row = owners_[i];
    number_cell(row.bytes < 0 ? signed_size_text(row.bytes)
                              : size_text(static_cast<uint64_t>(row.bytes)));
    number_cell(row.bytes < 0
                    ? ""
                    : percent_text(static_cast<uint64_t>(row.bytes), static_cast<uint64_t>(whole)));
    number_cell(row.peak_bytes == 0 ? "" : size_text(row.peak_bytes));
    ImGui::TableNextColumn();
    swatch(owner_colour(row.owner));
    text(owner_text(model, lane, row.owner, selection.cursor.time_ns(model)));
    explain(std::string(owner_meaning(row.owner)).c_str());
  });
  ImGui::EndTable();
}

void TablesPanel::draw_segments(const Model& model, Selection& selection) {
  const Moment& moment = selection.cursor.moment(model);
  const std::vector<SegmentRange>& ranges = moment.state.segments;
  const bool expandable = std::any_of(ranges.begin(), ranges.end(),
                                      [](const SegmentRange& range) { return range.expandable; });
  // In a narrow panel, the pool matters more than what follows from the rest or from the map.
  const ImGuiTableColumnFlags if_wide =
      ImGui::GetContentRegionAvail().x < px(kWideSegmentsPx) ? ImGuiTableColumnFlags_Disabled : 0;
  if (!ImGui::BeginTable("##segments", 8, kTableFlags)) return;
  ImGui::TableSetupColumn("size", kFirst, px(84));
  ImGui::TableSetupColumn("used", kNumber | if_wide, px(84));
  ImGui::TableSetupColumn("free", kNumber, px(84));
  ImGui::TableSetupColumn("blocks", kNumber | if_wide, px(64));
  ImGui::TableSetupColumn("holes", kNumber | if_wide, px(60));
  ImGui::TableSetupColumn("largest hole", kNumber, px(90));
  ImGui::TableSetupColumn("stream", ImGuiTableColumnFlags_WidthStretch);
  ImGui::TableSetupColumn("address", ImGuiTableColumnFlags_WidthFixed, px(expandable ? 190 : 120));
  begin_rows();
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
    ImGui::TableNextColumn();
    const uint32_t pool = source_of(model, moment).memory.segment_changes[range.change].pool;
    text(fitted(stream_text(range.stream, pool), ImGui::GetContentRegionAvail().x));
    ImGui::TableNextColumn();
    const WithFont mono(fonts().mono);
    text_dim(fmt::format("{:#x}{}", range.address, range.expandable ? "  expandable" : ""));
  });
  ImGui::EndTable();
}

void TablesPanel::draw(const Model& model, Selection& selection) {
  if (selection.cursor.lane() >= model.lanes.size()) {
    text_dim("This trace has no allocator history.");
    return;
  }
  if (!selection.highlights.search.empty()) {
    text_dim(fmt::format("filtered by \"{}\"", selection.highlights.search));
  }
  // Also those of other tabs, which may have been started when their tab was in front.
  allocations_.poll();
  stacks_.poll();
  modules_.poll();
  activity_.poll();
  if (busy()) text_dim("sorting ...");
  if (!ImGui::BeginTabBar("##tables", ImGuiTabBarFlags_FittingPolicyScroll)) return;
  using Draw = void (TablesPanel::*)(const Model&, Selection&);
  static constexpr std::pair<const char*, Draw> kTables[] = {
      {"Stacks", &TablesPanel::draw_stacks},
      {"Allocations", &TablesPanel::draw_allocations},
      {"Categories", &TablesPanel::draw_categories},
      {"Modules", &TablesPanel::draw_modules},
      {"Owners", &TablesPanel::draw_owners},
      {"Segments", &TablesPanel::draw_segments}};
  for (const auto& [title, draw_table] : kTables) {
    if (!begin_tab(title)) continue;
    (this->*draw_table)(model, selection);
    ImGui::EndTabItem();
  }
  if (begin_tab("Actions")) {
    rows_shown_ = actions_.draw(model, selection);
    ImGui::EndTabItem();
  }
  if (begin_tab("Kernels")) {
    rows_shown_ = activity_.draw_kernels(model, selection);
    ImGui::EndTabItem();
  }
  if (begin_tab("Collectives")) {
    rows_shown_ = activity_.draw_collectives(model, selection);
    ImGui::EndTabItem();
  }
  ImGui::EndTabBar();
}

}  // namespace tidemark::view
