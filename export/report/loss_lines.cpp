#include "export/report/loss_lines.h"

#include <fmt/format.h>

#include "analysis/wording.h"

namespace tidemark {

namespace {

void add_damage(std::vector<std::string>& lines, const Damage& damage, uint64_t unknown_blocks) {
  if (damage.blocks != 0) {
    lines.push_back(fmt::format("{} could not be read ({} lost)",
                                counted(damage.blocks, "damaged block"),
                                counted(damage.rows, "event")));
  }
  if (damage.truncated) lines.emplace_back("the file ends in the middle of a block");
  if (unknown_blocks != 0) {
    lines.push_back(
        fmt::format("{} written by a newer tidemark, left out", counted(unknown_blocks, "block")));
  }
}

void add_process(std::vector<std::string>& lines, const LossReport& loss) {
  if (loss.events_dropped != 0) {
    lines.push_back(
        fmt::format("{} dropped while recording", counted(loss.events_dropped, "event")));
  }
  lines.insert(lines.end(), loss.notes.begin(), loss.notes.end());
}

void add_device(std::vector<std::string>& lines, const DeviceReport& d) {
  if (d.blocks_before_history != 0) {
    lines.push_back(fmt::format(
        "cuda:{}: {} ({}) are older than the recorded history, which began late or overflowed",
        d.device, counted(d.blocks_before_history, "block"), size_text(d.bytes_before_history)));
  }
  if (d.anomalies != 0) {
    lines.push_back(fmt::format("cuda:{}: {} contradicted the rest of the history", d.device,
                                counted(d.anomalies, "event")));
  }
}

}  // namespace

std::vector<std::string> loss_lines(const Report& report) {
  std::vector<std::string> lines = report.notes;
  add_damage(lines, report.damage, report.unknown_blocks);
  for (const RankReport& rank : report.ranks) {
    add_process(lines, rank.loss);
    for (const DeviceReport& d : rank.devices) add_device(lines, d);
  }
  return lines;
}

std::vector<std::string> loss_lines(const TraceModel& model) {
  std::vector<std::string> lines;
  add_damage(lines, model.damage, model.unknown_blocks);
  for (const ProcessModel& process : model.processes) add_process(lines, loss_of(process));
  return lines;
}

}  // namespace tidemark
