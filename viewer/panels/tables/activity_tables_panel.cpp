#include "viewer/panels/tables/activity_tables_panel.h"

#include <fmt/format.h>
#include <imgui.h>

#include "analysis/wording.h"
#include "viewer/model/ticks.h"
#include "viewer/widgets/table.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

// More than this many are summed up and sorted in the background.
constexpr uint64_t kMany = 50'000;

}  // namespace

void ActivityTables::set_wake(const std::function<void()>& wake) {
  kernels_.set_wake(wake);
  collectives_.set_wake(wake);
}

bool ActivityTables::update(Key& key, const Model& model, const Selection& selection) {
  Key now{&model, model.lanes[selection.cursor.lane()].process, selection.view.range(),
          selection.highlights.search, key.sort};
  read_sort(now.sort);
  const bool same = key.model == now.model && key.process == now.process &&
                    key.view.begin == now.view.begin && key.view.end == now.view.end &&
                    key.filter == now.filter && key.sort.column == now.sort.column &&
                    key.sort.descending == now.sort.descending;
  if (!same) key = now;
  return !same;
}

size_t ActivityTables::draw_kernels(const Model& model, Selection& selection) {
  const uint32_t process = model.lanes[selection.cursor.lane()].process;
  const uint64_t count = model.activity[process].kernels;
  if (count == 0) {
    text_dim("No kernels were recorded. To record them, set TIDEMARK_KERNELS=1.");
    return 0;
  }
  text_dim(fmt::format("in the visible {}, by name; click to go to the longest",
                       span_text(selection.view.range().span())));
  const VisibleRange& seen = selection.view.range();
  if (meets(model.trace.processes[process].unrecorded, absolute_ns(model, seen.begin),
            absolute_ns(model, seen.end))) {
    text_dim("recorded in bursts: there were more, see the hatched parts of the timeline");
  }
  if (!ImGui::BeginTable("##kernels", 5, kTableFlags)) return 0;
  ImGui::TableSetupColumn("total", kFirst, px(84));
  ImGui::TableSetupColumn("count", kNumber, px(70));
  ImGui::TableSetupColumn("mean", kNumber, px(78));
  ImGui::TableSetupColumn("longest", kNumber, px(78));
  ImGui::TableSetupColumn("kernel", ImGuiTableColumnFlags_WidthStretch);
  begin_rows();
  if (update(kernels_key_, model, selection)) {
    kernels_.wish(
        [held = model.shared_from_this(), key = kernels_key_] {
          return Rows<KernelRow>{
              held.get(), key.process,
              kernel_rows(*held, key.process, absolute_ns(*held, key.view.begin),
                          absolute_ns(*held, key.view.end), key.filter, key.sort)};
        },
        count < kMany);
  }
  kernels_.poll();
  const Rows<KernelRow>& made = kernels_.value();
  const bool current = made.model == &model && made.process == process;
  const size_t rows = current ? made.rows.size() : 0;
  draw_rows(rows, [&](size_t i) {
    const KernelRow& row = made.rows[i];
    ImGui::TableNextColumn();
    const bool chosen = selection.highlights.activity == row.longest;
    if (ImGui::Selectable("##row", chosen, ImGuiSelectableFlags_SpanAllColumns)) {
      selection.choose_activity(model, row.longest);
      selection.reveal_cursor(model);
    }
    // The name is shown without parameters and namespaces.
    explain(std::string(model.text[process].names().string(row.name)).c_str());
    ImGui::SameLine(0, 0);
    text_right(span_text(static_cast<double>(row.total_ns)));
    number_cell(grouped(row.count));
    number_cell(span_text(static_cast<double>(row.mean_ns())));
    number_cell(span_text(static_cast<double>(row.longest_ns)));
    ImGui::TableNextColumn();
    swatch(stack_colour(row.name + 1));
    text(fitted_ends(model.text[process].kernel(row.name), ImGui::GetContentRegionAvail().x));
  });
  ImGui::EndTable();
  return rows;
}

size_t ActivityTables::draw_collectives(const Model& model, Selection& selection) {
  const uint32_t process = model.lanes[selection.cursor.lane()].process;
  const ProcessModel& p = model.trace.processes[process];
  if (p.nccl.empty()) {
    text_dim("No NCCL operations were recorded on this rank.");
    return 0;
  }
  text_dim(
      fmt::format("of this rank, in the visible {}", span_text(selection.view.range().span())));
  if (!ImGui::BeginTable("##collectives", 6, kTableFlags)) return 0;
  ImGui::TableSetupColumn("called", ImGuiTableColumnFlags_WidthFixed, px(110));
  ImGui::TableSetupColumn("wait", kNumber, px(84));
  ImGui::TableSetupColumn("on the card", kNumber, px(84));
  ImGui::TableSetupColumn("moves", kFirst, px(84));
  ImGui::TableSetupColumn("sequence", kNumber, px(76));
  ImGui::TableSetupColumn("operation", ImGuiTableColumnFlags_WidthStretch);
  begin_rows();
  if (update(collectives_key_, model, selection)) {
    collectives_.wish(
        [held = model.shared_from_this(), key = collectives_key_] {
          return Rows<CollectiveRow>{
              held.get(), key.process,
              collective_rows(*held, key.process, absolute_ns(*held, key.view.begin),
                              absolute_ns(*held, key.view.end), key.filter, key.sort)};
        },
        p.nccl.size() < kMany);
  }
  collectives_.poll();
  const Rows<CollectiveRow>& made = collectives_.value();
  const bool current = made.model == &model && made.process == process;
  const size_t rows = current ? made.rows.size() : 0;
  draw_rows(rows, [&](size_t i) {
    const CollectiveRow& row = made.rows[i];
    const NcclOperation& op = p.nccl[row.operation];
    const bool ran = op.gpu_start_ns != 0;
    ImGui::TableNextColumn();
    if (ImGui::Selectable("##row", selection.highlights.activity == row.ref,
                          ImGuiSelectableFlags_SpanAllColumns)) {
      selection.choose_activity(model, row.ref);
      selection.reveal_cursor(model);
    }
    ImGui::SameLine(0, 0);
    text(instant_text(since_start(model, op.start_ns), selection.view.range().span()));
    number_cell(ran ? span_text(static_cast<double>(op.gpu_start_ns - op.start_ns)) : "?");
    number_cell(ran ? span_text(static_cast<double>(op.gpu_duration_ns)) : "?");
    number_cell(size_text(op.size_bytes));
    number_cell(op.kind == NcclKind::kPointToPoint ? "" : grouped(op.sequence));
    ImGui::TableNextColumn();
    const std::string_view name = p.names.string(op.function);
    swatch(owner_colour(name));
    text(time_of(op, model.trace.end_ns).never_ran ? fmt::format("{}, never ran", name)
                                                   : std::string(name));
  });
  ImGui::EndTable();
  return rows;
}

}  // namespace tidemark::view
