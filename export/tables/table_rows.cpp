#include "export/tables/table_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tidemark {

namespace {

TableColumn i(std::string_view name) {
  return {name, CellType::kInteger};
}
TableColumn t(std::string_view name) {
  return {name, CellType::kText};
}

std::vector<TableSpec> memory_tables() {
  return {
      {"allocations",
       {i("allocation_id"),   i("rank_id"),         i("device"),         i("address"),
        i("block_bytes"),     i("requested_bytes"), i("stream"),         i("birth_ns"),
        i("release_ns"),      i("death_ns"),        i("birth_event"),    i("release_event"),
        i("death_event"),     i("segment_id"),      i("stack_id"),       t("category"),
        t("compile_context"), t("metadata"),        i("before_history"), t("label"),
        t("module")},
       {{"rank_id, device, birth_event", true}, {"stack_id"}, {"segment_id"}},
       true},
      {"segments",
       {i("segment_id"), i("rank_id"), i("device"), i("address"), i("size_bytes"), i("stream"),
        i("pool"), i("expandable"), i("birth_ns"), i("death_ns"), i("birth_event"),
        i("death_event"), i("stack_id"), i("before_history")},
       {{"rank_id, device, birth_event"}},
       true},
      {"events",
       {i("event_id"), i("rank_id"), i("device"), i("event"), i("time_ns"), t("change"), i("bytes"),
        i("allocated_bytes"), i("requested_bytes"), i("active_bytes"), i("reserved_bytes")},
       {{"rank_id, device, time_ns", true}},
       true},
      {"steps",
       {i("rank_id"), i("device"), i("step"), i("begin_ns"), i("end_ns"), i("begin_event"),
        i("end_event"), i("low_bytes"), i("high_bytes")},
       {{"rank_id, device, step", true}}},
      {"holes",
       {i("rank_id"), i("device"), t("moment"), i("event"), i("time_ns"), i("address"),
        i("size_bytes"), i("segment_address"), i("segment_bytes"), i("stream")},
       {}},
      {"ledger",
       {i("rank_id"), i("device"), i("time_ns"), t("owner"), i("bytes"), t("moment")},
       {}},
      {"out_of_memory",
       {i("rank_id"), i("device"), i("time_ns"), t("layer"), i("requested_bytes"),
        i("allocated_bytes"), i("reserved_bytes"), i("device_free_bytes"), i("event"),
        i("stack_id")},
       {}},
      {"stacks", {i("stack_id"), i("rank_id"), i("depth"), t("text"), t("line")}, {}, true},
      {"stack_frames",
       {i("stack_id"), i("position"), i("frame_id")},
       {{"stack_id", true}, {"frame_id"}}},
      {"frames",
       {i("frame_id"), i("rank_id"), t("function"), t("file"), i("line"), t("text")},
       {{"file, line"}},
       true},
  };
}

std::vector<TableSpec> identity_tables() {
  return {
      {"trace",
       {t("path"), t("kind"), i("start_ns"), i("end_ns"), i("damaged_blocks"), i("lost_rows"),
        i("unfinished")},
       {}},
      {"ranks",
       {i("rank_id"), i("rank"), i("local_rank"), i("world_size"), t("host"), i("pid"),
        i("parent_pid"), t("job"), t("command"), t("framework"), t("source"), i("start_ns"),
        i("clock_offset_ns"), i("clock_drift_ppb"), i("clock_reference_ns")},
       {},
       true},
      {"devices",
       {i("rank_id"),
        i("device"),
        t("name"),
        t("uuid"),
        t("bus"),
        i("total_bytes"),
        i("reserved_by_driver_bytes"),
        i("events"),
        i("allocated_peak_bytes"),
        i("allocated_peak_ns"),
        i("allocated_peak_event"),
        i("requested_peak_bytes"),
        i("requested_peak_ns"),
        i("reserved_peak_bytes"),
        i("reserved_peak_ns"),
        i("blocks_before_history"),
        i("bytes_before_history"),
        i("contradicting_events"),
        i("reserved_peak_event"),
        i("driver_peak_bytes"),
        i("driver_peak_ns"),
        i("device_used_peak_bytes"),
        i("device_used_peak_ns"),
        i("growth_bytes_per_step"),
        i("kept_from_ns"),
        i("run_allocated_peak_bytes"),
        i("run_reserved_peak_bytes"),
        i("run_driver_peak_bytes"),
        i("run_device_used_peak_bytes")},
       {{"rank_id, device", true}}},
      {"settings", {i("rank_id"), t("scope"), t("key"), t("value")}, {}},
      {"health", {i("rank_id"), i("time_ns"), t("kind"), i("value"), t("detail")}, {}},
  };
}

std::vector<TableSpec> activity_tables() {
  return {
      {"kernels",
       {i("rank_id"), i("device"), i("stream"), i("start_ns"), i("duration_ns"), t("name"),
        i("context"), i("correlation"), i("graph_node"), i("grid_x"), i("grid_y"), i("grid_z"),
        i("block_x"), i("block_y"), i("block_z"), i("shared_bytes"), i("registers"),
        i("local_memory_bytes")},
       {{"rank_id, start_ns"}}},
      {"copies",
       {i("rank_id"), i("device"), i("stream"), i("start_ns"), i("duration_ns"), t("kind"),
        i("size_bytes"), i("correlation")},
       {{"rank_id, start_ns"}}},
      {"communicators",
       {i("rank_id"), i("communicator"), t("name"), i("ranks"), i("rank_in_communicator"),
        i("nodes"), i("device"), i("time_ns")},
       {}},
      {"collectives",
       {i("rank_id"),      i("device"),
        i("communicator"), i("sequence"),
        t("kind"),         t("function"),
        t("datatype"),     i("count"),
        i("size_bytes"),   i("peer"),
        i("start_ns"),     i("duration_ns"),
        i("gpu_start_ns"), i("gpu_duration_ns"),
        t("algorithm"),    t("protocol"),
        i("channels"),     i("stream"),
        i("send_address"), i("receive_address"),
        i("thread")},
       {{"communicator, sequence"}, {"rank_id, start_ns"}}},
      {"driver_events",
       {i("rank_id"), i("device"), i("time_ns"), t("operation"), t("kind"), i("address"),
        i("size_bytes"), i("handle"), i("stream"), i("thread"), t("owner"), i("result"), i("flags"),
        i("stack_id")},
       {{"rank_id, time_ns"}}},
      {"driver_allocations",
       {i("rank_id"), i("device"), t("kind"), t("owner"), i("address"), i("size_bytes"),
        i("stream"), i("birth_ns"), i("death_ns"), i("on_card"), i("stack_id")},
       {{"rank_id, device, birth_ns"}}},
      {"samples",
       {i("rank_id"), i("device"), i("time_ns"), t("kind"), i("subject"), i("value")},
       {{"rank_id, kind, time_ns"}}},
      {"marks",
       {i("rank_id"), i("device"), t("kind"), t("name"), t("domain"), i("thread"), i("begin_ns"),
        i("end_ns"), i("is_instant")},
       {{"rank_id, begin_ns", true}}},
      {"findings",
       {i("finding_id"), t("id"), t("severity"), i("rank_id"), i("rank"), i("device"), t("summary"),
        t("stack")},
       {},
       true},
      {"finding_evidence", {i("finding_id"), t("key"), i("value")}, {}},
      {"finding_advice", {i("finding_id"), t("action"), t("detail"), i("saves_bytes")}, {}},
  };
}

}  // namespace

void TableSink::begin_table(const TableSpec& table) {
  if (cells_ != 0) fail_row();
  table_ = table.name;
  columns_ = table.columns.size();
  cells_ = 0;
  put_table(table);
}

void TableSink::end_row() {
  if (cells_ != columns_) return fail_row();
  put_row_end();
  cells_ = 0;
  ++rows_;
}

Status TableSink::finish() {
  if (cells_ != 0) fail_row();
  put_end();
  return message_.empty() ? commit() : Status(Error{message_});
}

void TableSink::fail(std::string message) {
  if (message_.empty()) message_ = std::move(message);
  good_ = false;
}

void TableSink::fail_row() {
  fail(
      fmt::format("table {}: a row has {} cells, but the table has {} columns (a defect of "
                  "tidemark: please report it)",
                  table_, cells_, columns_));
}

std::vector<const AllocationHistory*> by_device(const ProcessModel& process) {
  std::vector<const AllocationHistory*> models;
  for (const AllocationHistory& model : process.framework) models.push_back(&model);
  std::stable_sort(models.begin(), models.end(),
                   [](const auto* a, const auto* b) { return a->device < b->device; });
  return models;
}

const std::vector<TableSpec>& table_specs() {
  static const std::vector<TableSpec> all = [] {
    std::vector<TableSpec> specs = identity_tables();
    for (const auto& part : {memory_tables(), activity_tables()}) {
      specs.insert(specs.end(), part.begin(), part.end());
    }
    return specs;
  }();
  return all;
}

const TableSpec& table_spec(std::string_view name) {
  const auto& all = table_specs();
  return *std::find_if(all.begin(), all.end(),
                       [&](const TableSpec& spec) { return spec.name == name; });
}

}  // namespace tidemark
