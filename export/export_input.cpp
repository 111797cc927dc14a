#include "export/export_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "export/utf8.h"

namespace tidemark {

namespace {

// The processes of a file, in the order in which load_trace() made their models.
std::set<uint32_t> processes_of(const TraceReader& reader) {
  std::set<uint32_t> ids;
  for (const BlockRef& ref : reader.blocks()) {
    const bool name_table = ref.kind != BlockKind::kNone && ref.kind <= BlockKind::kNnModules;
    const bool event_table = ref.kind >= BlockKind::kDriverEvents && ref.kind <= BlockKind::kHealth;
    if (name_table || event_table) ids.insert(ref.process);
  }
  return ids;
}

}  // namespace

std::string ExportProcess::label() const {
  const Process& info = model->info;
  std::string text = info.rank >= 0 ? fmt::format("rank {}", info.rank) : std::string("process");
  if (const std::string_view host = name(info.host); !host.empty()) {
    text += fmt::format(" on {}", utf8_text(host));
  }
  if (info.pid != 0) text += fmt::format(", pid {}", info.pid);
  return text;
}

Result<std::vector<ExportProcess>> chosen_processes(const ExportInput& input,
                                                    const ExportOptions& options) {
  std::vector<ExportProcess> all;
  for (const TraceReader& reader : input.readers) {
    for (const uint32_t id : processes_of(reader)) {
      if (all.size() == input.model.processes.size())
        return Error{"the model belongs to another trace"};
      ExportProcess process;
      process.model = &input.model.processes[all.size()];
      process.reader = &reader;
      process.id = id;
      process.number = static_cast<uint32_t>(all.size()) + 1;
      process.clock = process.model->clock;
      all.push_back(process);
    }
  }
  if (all.size() != input.model.processes.size())
    return Error{"the model belongs to another trace"};
  for (const int64_t rank : options.ranks) {
    const auto is_rank = [&](const ExportProcess& p) { return p.model->info.rank == rank; };
    if (std::none_of(all.begin(), all.end(), is_rank)) {
      return Error{fmt::format("{}: no rank {} in this trace", input.model.path, rank)};
    }
  }
  for (const uint32_t number : options.processes) {
    if (number == 0 || number > all.size()) {
      return Error{fmt::format("{}: no process {} in this trace; {}", input.model.path, number,
                               ways_to_choose(all))};
    }
  }
  const auto left_out = [](const auto& chosen, auto value) {
    return !chosen.empty() && std::find(chosen.begin(), chosen.end(), value) == chosen.end();
  };
  std::erase_if(all, [&](const ExportProcess& p) {
    return left_out(options.ranks, p.model->info.rank) || left_out(options.processes, p.number);
  });
  if (all.empty() && !options.processes.empty()) {
    return Error{input.model.path + ": none of the processes of --processes has a rank of --ranks"};
  }
  return all;
}

std::string ways_to_choose(std::span<const ExportProcess> processes) {
  constexpr size_t kListed = 6;
  std::set<int64_t> ranks;
  for (const ExportProcess& p : processes) ranks.insert(p.model->info.rank);
  if (ranks.size() == processes.size() && !ranks.contains(-1)) return "choose one with --ranks";
  std::string text = "choose one with --processes:";
  for (size_t i = 0; i < std::min(kListed, processes.size()); ++i) {
    const ExportProcess& p = processes[i];
    const std::string& path = p.reader->path();
    const std::string who = p.model->info.pid != 0 ? p.label() : path.substr(path.rfind('/') + 1);
    text += fmt::format("{} {} ({})", i == 0 ? "" : ",", p.number, utf8_text(who));
  }
  if (processes.size() > kListed) text += fmt::format(", ... {}", processes.back().number);
  return text;
}

Result<const Report*> report_of(const ExportInput& input, std::optional<Report>& made) {
  if (input.report != nullptr) return input.report;
  Result<Report> report = make_report(input.model, {});
  if (!report) return report.error();
  made = std::move(*report);
  return &*made;
}

const DeviceReport* device_report(const Report& report, const ExportProcess& process,
                                  int64_t device) {
  // A report of the whole trace lists its processes in the trace's order.
  const size_t place = process.number - 1;
  if (place >= report.ranks.size()) return nullptr;
  for (const DeviceReport& d : report.ranks[place].devices) {
    if (d.device == device) return &d;
  }
  return nullptr;
}

const Steps* steps_of(const Report& report, const ExportProcess& process, int64_t device) {
  const DeviceReport* told = device_report(report, process, device);
  return told != nullptr && told->step_events.count() != 0 ? &told->step_events : nullptr;
}

size_t process_of(const Finding& finding, std::span<const ExportProcess> processes) {
  size_t best = 0;
  int best_score = -1;
  for (size_t i = 0; i < processes.size(); ++i) {
    const ProcessModel& model = *processes[i].model;
    if (!finding.concerns(model.info.rank, model.info.pid, model.file)) continue;
    const AllocationHistory* history = model.framework_on(finding.device);
    const int score = (model.info.rank == finding.rank ? 4 : 0) +
                      (history != nullptr && history->event_count() != 0 ? 2 : 0) +
                      (model.device(finding.device) != nullptr ? 1 : 0);
    if (score > best_score) {
      best = i;
      best_score = score;
    }
  }
  return best;
}

bool is_chosen(const Finding& finding, std::span<const ExportProcess> processes) {
  return std::any_of(processes.begin(), processes.end(), [&](const ExportProcess& p) {
    return finding.concerns(p.model->info.rank, p.model->info.pid, p.model->file);
  });
}

std::vector<OutOfMemory> errors_outside_history(const ExportProcess& process) {
  std::vector<OutOfMemory> errors;
  for (const FailedAllocation& f : process.model->driver.failures) {
    OutOfMemory row = f.as_row({});
    const std::vector<OutOfMemory>& seen = process.model->ooms;  // by time
    auto same = std::partition_point(seen.begin(), seen.end(),
                                     [&](const OutOfMemory& o) { return o.time_ns < f.time_ns; });
    for (; same != seen.end() && same->time_ns == f.time_ns; ++same) {
      if (same->device == f.device) row.device_free_bytes = same->device_free_bytes;
    }
    errors.push_back(row);
  }
  // What PyTorch handled is part of its own error, or was none.
  const auto handled = [&](Layer layer, int64_t device) {
    return std::any_of(process.model->driver.handled.begin(), process.model->driver.handled.end(),
                       [&](const FailedAllocation& f) {
                         return f.layer == layer && (device < 0 || f.device == device);
                       });
  };
  const bool driver_told = !errors.empty() || handled(Layer::kDriver, -1);
  BlockDecoder decoder(*process.reader);
  for_each_block<OutOfMemory>(
      *process.reader, decoder, process.id, [&](auto rows, const BlockRef&) {
        for (const OutOfMemory& oom : rows) {
          const AllocationHistory* history = process.model->framework_on(oom.device);
          const bool told = oom.layer == Layer::kDriver
                                ? driver_told
                                : (history != nullptr && !history->failures.empty()) ||
                                      handled(Layer::kFramework, oom.device);
          if (!told) errors.push_back(oom);
        }
      });
  return errors;
}

std::string stack_lines(const Dictionary& names, uint32_t stack) {
  std::string text;
  for (const std::string& line : names.stack_text(stack)) {
    if (!text.empty()) text += '\n';
    text += line;
  }
  return utf8_text(text);
}

}  // namespace tidemark
