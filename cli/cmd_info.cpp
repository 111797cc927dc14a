#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "analysis/load/trace_model.h"
#include "analysis/wording.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "export/report/kernel_bursts.h"
#include "proto/table_names.h"

namespace tidemark::cli {

namespace {

void print_process(const ProcessModel& p) {
  const std::string_view host = p.names.string(p.info.host);
  std::string who = p.info.rank >= 0 ? fmt::format("rank {}", p.info.rank) : std::string("process");
  if (!p.file.empty()) who += fmt::format(" of {}", p.file);
  if (p.info.rank >= 0 && p.info.world_size != 0) who += fmt::format(" of {}", p.info.world_size);
  if (!host.empty()) who += fmt::format(" on {}", host);
  if (p.info.pid != 0) who += fmt::format(", pid {}", p.info.pid);
  if (const std::string_view job = p.names.string(p.info.job); !job.empty()) {
    who += fmt::format(", job {}", job);
  }
  if (p.info.source == Source::kTorchSnapshot) who += ", from a PyTorch snapshot";
  print_line(who);
  for (const Setting& setting : p.settings) {
    if (p.names.string(setting.key) == "cupti_subscription") {
      print_line(fmt::format("  CUPTI: {}", p.names.string(setting.value)));
    }
  }
  for (const AllocationHistory& m : p.framework) {
    print_line(fmt::format("  cuda:{}: {}, {} ({} older than the history), {}", m.device,
                           counted(m.recorded_events, "allocator event"),
                           counted(m.allocations.size(), "allocation"), grouped(m.seeded_blocks),
                           counted(m.failures.size(), "out-of-memory error")));
  }
  std::map<std::string_view, uint64_t> dropped;  // by table or source
  for (const Health& h : p.health) {
    const std::string_view detail = p.names.string(h.detail);
    if (h.kind == HealthKind::kEventsDropped || h.kind == HealthKind::kRecordsDroppedByCupti) {
      dropped[detail] += h.value;
      continue;
    }
    // `tidemark snapshot` turns off what reports changes.
    const bool as_meant = p.is_state_only() && h.kind == HealthKind::kSourceDisabled;
    if (!detail.empty() && h.kind != HealthKind::kOverheadNs && !as_meant)
      print_line(fmt::format("  ! {}", detail));
  }
  for (const auto& [what, count] : dropped) {
    print_line(fmt::format("  ! {} dropped while recording{}{}", counted(count, "event"),
                           what.empty() ? "" : ": ", what));
  }
  const LossReport loss = loss_of(p);
  if (const std::string text = bursts_text(loss.bursts); !text.empty()) print_line("  " + text);
  if (loss.last_kernels) print_line("  ! kernels of its last moments may be missing");
}

void print_losses(const TraceModel& model, const std::vector<std::string>& jobs) {
  const Damage& d = model.damage;
  if (d.any()) {
    print_line(fmt::format("damaged: {}, {} lost, {} skipped{}", counted(d.blocks, "block"),
                           counted(d.rows, "row"), counted(d.skipped_bytes, "byte"),
                           d.truncated ? ", the file ends inside a block" : ""));
  }
  if (d.unfinished) print_line("unfinished: the recording was interrupted, or is still going on");
  if (model.incomplete) print_line("incomplete: ranks or files of the job are missing");
  if (model.unknown_blocks != 0) {
    print_line(fmt::format("skipped: {} of kinds unknown to this version of tidemark",
                           counted(model.unknown_blocks, "block")));
  }
  if (!jobs.empty()) {
    print_line(fmt::format("several jobs: {}", fmt::join(jobs, ", ")));
  }
  bool lost =
      !jobs.empty() || d.any() || d.unfinished || model.unknown_blocks != 0 || model.incomplete;
  bool doubt = false;
  for (const ProcessModel& process : model.processes) {
    const LossReport loss = loss_of(process);
    lost |= loss.events_dropped != 0 || loss.entries_skipped != 0 ||
            loss.history_lost_blocks != 0 || loss.last_kernels || loss.stopped;
    doubt |= loss.killed || !loss.notes.empty();
  }
  if (lost) return;
  print_line(doubt ? "nothing that was recorded is lost" : "complete: nothing lost");
}

int run(const std::string& path) {
  const Result<LoadedTrace> trace = load_with_progress(path);
  if (!trace) return fail(trace.error());
  const TraceModel& model = trace->model;
  const std::vector<TraceReader>& readers = trace->source.readers;
  uint64_t bytes = 0;
  size_t blocks = 0;
  for (const TraceReader& reader : readers) {
    // A snapshot is read through a trace in memory: what counts is the file.
    std::error_code error;
    const uint64_t on_disk = std::filesystem::file_size(reader.path(), error);
    bytes += error ? reader.file_bytes() : on_disk;
    blocks += reader.blocks().size();
  }
  print_line(path);
  print_line(fmt::format("{}, {}, {}", counted(readers.size(), "file"), size_text(bytes),
                         counted(blocks, "block")));
  print_line(fmt::format("{} from the first event to the last",
                         duration_text(model.end_ns - model.start_ns)));
  uint64_t events = 0;
  for (const ProcessModel& p : model.processes) events += memory_events(p);
  print_line(counted(events, "memory event"));
  for (const ProcessModel& p : model.processes) print_process(p);
  print_line("tables:");
  for (const auto& [kind, rows] : model.rows_by_kind) {
    if (rows != 0) print_line(fmt::format("  {:>14}  {}", grouped(rows), table_name(kind)));
  }
  print_losses(model, trace->source.jobs);
  return kOk;
}

}  // namespace

void add_info(CLI::App& app, int& code) {
  auto path = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("info", "show what is in a trace: ranks, devices, tables, losses");
  command->add_option("PATH", *path, "a trace, a directory of traces, or a snapshot")->required();
  command->footer("Example:\n  tidemark info run.tmk");
  command->callback([path, &code] { code = run(*path); });
}

}  // namespace tidemark::cli
