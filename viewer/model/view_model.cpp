#include "viewer/model/view_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/categories.h"
#include "export/names.h"

namespace tidemark::view {

namespace {

std::string process_name(const TraceModel& trace, uint32_t index) {
  const Process& info = trace.processes[index].info;
  if (info.rank >= 0 && (info.world_size > 1 || trace.processes.size() > 1)) {
    return fmt::format("rank {}, ", info.rank);
  }
  if (trace.processes.size() < 2) return "";
  if (info.pid != 0) return fmt::format("pid {}, ", info.pid);
  return fmt::format("process {}, ", index + 1);
}

Lane make_lane(const TraceModel& trace, uint32_t index, const FrameworkModel& memory) {
  const ProcessModel& process = trace.processes[index];
  Lane lane{index,
            &memory,
            process_name(trace, index) + fmt::format("cuda:{}", memory.device),
            "",
            0,
            MinMaxPyramid(memory),
            StateIndex(memory)};
  if (const Device* device = process.device(memory.device); device != nullptr) {
    lane.card = process.names.string(device->name);
    lane.total_bytes = device->total_bytes;
  }
  if (const std::string_view host = process.names.string(process.info.host); !host.empty()) {
    lane.card += (lane.card.empty() ? "" : ", ") + std::string(host);
  }
  return lane;
}

void add_ooms(const ProcessModel& process, uint32_t lane_index, const Lane& lane,
              std::vector<OomPoint>& ooms) {
  for (const FailedAllocation& f : lane.memory->failures) {
    ooms.push_back({lane_index, f.event, f.time_ns, f.requested_bytes, f.device_free_bytes, f.stack,
                    Layer::kFramework});
  }
  for (const DriverFailure& f : process.driver.failures) {
    if (f.device != lane.memory->device) continue;
    uint32_t event = 0;
    lane.memory->event_at(f.time_ns, event);
    ooms.push_back({lane_index, event, f.time_ns, f.requested_bytes, 0, f.stack, Layer::kDriver});
  }
}

void device_losses(const std::string& process, const DeviceReport& d,
                   std::vector<std::string>& out) {
  const std::string where = fmt::format("{}cuda:{}", process, d.device);
  if (d.blocks_before_history != 0) {
    out.push_back(fmt::format(
        "{}: {} ({}) are older than the recorded history, which began late "
        "or overflowed",
        where, counted(d.blocks_before_history, "block"), size_text(d.bytes_before_history)));
  }
  if (d.anomalies != 0) {
    out.push_back(fmt::format("{}: {} contradicted the rest of the history", where,
                              counted(d.anomalies, "event")));
  }
}

std::vector<std::string> losses_of(const TraceModel& trace, const Report& report,
                                   const std::vector<std::string>& warnings) {
  std::vector<std::string> out = warnings;
  if (report.damage.blocks != 0) {
    out.push_back(fmt::format("{} could not be read ({} lost in them)",
                              counted(report.damage.blocks, "damaged block"),
                              counted(report.damage.rows, "event")));
  }
  if (report.damage.truncated) out.emplace_back("the file ends in the middle of a block");
  if (report.unknown_blocks != 0) {
    out.push_back(fmt::format("{} written by a newer tidemark, left out",
                              counted(report.unknown_blocks, "block")));
  }
  // A report of the whole trace lists its processes in the trace's order.
  for (uint32_t i = 0; i < report.ranks.size(); ++i) {
    const RankReport& rank = report.ranks[i];
    const std::string process = process_name(trace, i);
    if (rank.loss.events_dropped != 0) {
      out.push_back(fmt::format("{}{} dropped while recording", process,
                                counted(rank.loss.events_dropped, "event")));
    }
    for (const std::string& note : rank.loss.notes) out.push_back(process + note);
    for (const DeviceReport& d : rank.devices) device_losses(process, d, out);
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<const Model>> make_model(TraceModel trace,
                                                const std::vector<std::string>& warnings) {
  auto model = std::make_unique<Model>();
  model->trace = std::move(trace);
  Result<Report> report = make_report(model->trace, {});
  if (!report) return report.error();
  model->report = std::move(*report);
  infer_categories(model->trace);
  for (uint32_t p = 0; p < model->trace.processes.size(); ++p) {
    const ProcessModel& process = model->trace.processes[p];
    model->text.emplace_back(process.names);
    model->marks.push_back(MarkLanes::of(process, model->trace.end_ns));
    for (const FrameworkModel& memory : process.framework) {
      const auto index = static_cast<uint32_t>(model->lanes.size());
      model->lanes.push_back(make_lane(model->trace, p, memory));
      model->events += memory.event_count();
      add_ooms(process, index, model->lanes.back(), model->ooms);
    }
    if (const MarkLanes& marks = model->marks.back(); marks.unmatched_ends + marks.left_out != 0) {
      model->losses.push_back(
          fmt::format("{} of annotations had no begin or nested too deep, and are not drawn",
                      counted(marks.unmatched_ends + marks.left_out, "range")));
    }
  }
  std::stable_sort(model->ooms.begin(), model->ooms.end(),
                   [](const OomPoint& a, const OomPoint& b) { return a.time_ns < b.time_ns; });
  std::vector<std::string> losses = losses_of(model->trace, model->report, warnings);
  model->losses.insert(model->losses.begin(), losses.begin(), losses.end());
  return std::unique_ptr<const Model>(std::move(model));
}

}  // namespace tidemark::view
