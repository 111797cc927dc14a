#include "export/report/loss_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "analysis/report/replaced.h"
#include "analysis/wording.h"
#include "export/report/report_wording.h"

namespace tidemark {

namespace {

void add_damage(std::vector<std::string>& lines, const Damage& damage, uint64_t unknown_blocks) {
  if (damage.blocks != 0) {
    lines.push_back(fmt::format("{} could not be read ({} lost)",
                                counted(damage.blocks, "damaged block"),
                                counted(damage.rows, "event")));
  }
  if (damage.blocks == 0 && !damage.truncated && damage.skipped_bytes != 0) {
    lines.push_back(fmt::format("{} could not be read", counted(damage.skipped_bytes, "byte")));
  }
  if (damage.truncated) {
    lines.emplace_back("the file ends in the middle of a block");
  } else if (damage.unfinished) {
    lines.emplace_back("the recording was interrupted, or is still going on");
  }
  if (unknown_blocks != 0) {
    lines.push_back(
        fmt::format("{} written by a newer tidemark, left out", counted(unknown_blocks, "block")));
  }
}

// Ranks may share a note, and a merged trace has one on its missing ranks: `known` are already
// said.
void add_process(std::vector<std::string>& lines, const LossReport& loss,
                 const std::vector<std::string>& known) {
  if (loss.events_dropped != 0) {
    lines.push_back(
        fmt::format("{} dropped while recording", counted(loss.events_dropped, "event")));
  }
  for (const std::string& note : loss.notes) {
    const auto has_note = [&](const std::vector<std::string>& all) {
      return std::find(all.begin(), all.end(), note) != all.end();
    };
    if (!has_note(lines) && !has_note(known)) lines.push_back(note);
  }
}

// Processes that did not exit normally, in one line for those whose last kernels CUPTI may not have
// delivered, and one for the others.
class KilledProcesses {
 public:
  void add(int64_t rank, uint64_t pid, const LossReport& loss) {
    ++processes_;
    ++of_rank_[rank];
    if (loss.killed) (loss.last_kernels ? with_kernels_ : others_).push_back({rank, pid});
  }
  void say(std::vector<std::string>& lines) const {
    say(with_kernels_, "kernels of the last moments may be missing", lines);
    say(others_, "the recording ends there", lines);
  }

 private:
  struct Process {
    int64_t rank;
    uint64_t pid;
  };
  std::string name(const Process& p) const {
    if (p.rank < 0) return fmt::format("process {}", p.pid);
    return of_rank_.at(p.rank) > 1 ? fmt::format("rank {} (pid {})", p.rank, p.pid)
                                   : fmt::format("rank {}", p.rank);
  }
  void say(const std::vector<Process>& processes, std::string_view effect,
           std::vector<std::string>& lines) const {
    constexpr size_t kListed = 8;
    if (processes.empty()) return;
    std::vector<std::string> killed;
    for (const Process& p : processes) killed.push_back(name(p));
    lines.push_back(
        fmt::format("{} killed or did not exit normally: {}",
                    processes_ == 1           ? "the process was"
                    : killed.size() > kListed ? counted(killed.size(), "process") + " were"
                    : killed.size() == 1      ? killed.front() + " was"
                                              : fmt::format("{} were", fmt::join(killed, ", ")),
                    effect));
  }

  size_t processes_ = 0;
  std::map<int64_t, size_t> of_rank_;
  std::vector<Process> with_kernels_;
  std::vector<Process> others_;
};

// A damaged history may have begun in time.
std::string_view beginning(const DeviceReport& d, const Damage& damage) {
  if (damage.any()) return "the first event that could be read";
  if (d.run.is_window()) return "the kept window";
  return d.events == 0 ? "the recording, which has no event of this device"
                       : "the recorded history, which began late or overflowed";
}

}  // namespace

std::vector<std::string> loss_lines(const DeviceReport& d, const std::string& where,
                                    const Damage& damage) {
  std::vector<std::string> lines;
  if (d.state_only) {
    lines.push_back(fmt::format("{}: {}: only its state when the snapshot was taken is known",
                                where, damage.any() ? "no history could be read" : "no history"));
  } else if (d.blocks_before_history != 0) {
    lines.push_back(fmt::format("{}: {} ({}) {} older than {}", where,
                                counted(d.blocks_before_history, "block"),
                                size_text(d.bytes_before_history),
                                d.blocks_before_history == 1 ? "is" : "are", beginning(d, damage)));
  }
  if (d.began_late) {
    lines.push_back(fmt::format(
        "{}: the peaks are of the recorded part only: those of the whole run may be higher",
        where));
  }
  if (d.stacks_only_at_end) {
    lines.push_back(
        fmt::format("{}: stacks are known only of blocks that were alive at the end", where));
  }
  if (d.anomalies != 0) {
    lines.push_back(fmt::format("{}: {} contradicted the rest of the history", where,
                                counted(d.anomalies, "event")));
  }
  return lines;
}

std::vector<std::string> killed_lines(const Report& report) {
  std::vector<std::string> lines;
  KilledProcesses killed;
  for (const RankReport& rank : report.ranks) killed.add(rank.rank, rank.pid, rank.loss);
  killed.say(lines);
  return lines;
}

std::vector<std::string> loss_lines(const Report& report) {
  std::vector<std::string> lines = report.notes;
  add_damage(lines, report.damage, report.unknown_blocks);
  for (std::string& text : killed_lines(report)) lines.push_back(std::move(text));
  for (const RankReport& rank : report.ranks) {
    add_process(lines, rank.loss, report.notes);
    for (const DeviceReport& d : rank.devices) {
      if (!d.state_only && !d.began_late && d.blocks_before_history == 0 && !d.stacks_only_at_end &&
          d.anomalies == 0) {
        continue;
      }
      std::string where =
          report.ranks.size() > 1 ? process_text(report, rank.rank, rank.pid, rank.file) : "";
      where += fmt::format("{}cuda:{}", where.empty() ? "" : " ", d.device);
      const std::vector<std::string> of_device = loss_lines(d, where, report.damage);
      lines.insert(lines.end(), of_device.begin(), of_device.end());
    }
  }
  return lines;
}

std::vector<std::string> loss_lines(const TraceModel& model) {
  std::vector<std::string> lines;
  add_damage(lines, model.damage, model.unknown_blocks);
  KilledProcesses killed;
  for (const ProcessModel& process : model.processes) {
    const LossReport loss = loss_among(process, model.processes);
    killed.add(process.info.rank, process.info.pid, loss);
    add_process(lines, loss, model.notes);
  }
  killed.say(lines);
  return lines;
}

}  // namespace tidemark
