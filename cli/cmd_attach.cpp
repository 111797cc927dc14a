#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "cli/captures.h"
#include "cli/command.h"
#include "cli/live_view.h"
#include "cli/process_choice.h"
#include "cli/summary.h"
#include "cli/terminal.h"
#include "cli/unit_options.h"
#include "proto/control.h"

namespace tidemark::cli {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

struct Options {
  ProcessChoice choice;
  std::string directory;
  std::string time;
  std::string stacks;
  std::vector<std::string> keep;
  std::string library;
  std::string overhead;
  bool no_kernels = false;
  bool live = false;
  bool quiet = false;
};

// Starts the captures and returns the processes where it worked.
Result<std::vector<CudaProcess>> start_all(std::vector<CudaProcess> processes,
                                           const ControlRequest& request) {
  std::vector<CudaProcess> started;
  const bool alone = processes.size() == 1;
  for (CudaProcess& process : processes) {
    const Result<ControlReply> reply = process.client->ask(control::kStart, request);
    if (reply) {
      process.trace = reply->text("trace");
      started.push_back(std::move(process));
    } else if (alone) {
      return Error{fmt::format("{}: {}", process.label(), reply.error().message)};
    } else {
      warn(fmt::format("{}: {}", process.label(), reply.error().message));
    }
  }
  if (started.empty()) return Error{"recording could not be started in any of the processes"};
  return started;
}

// Returns when the time is over, a signal asks to stop, or all processes have ended.
void watch(std::vector<CudaProcess>& processes, std::optional<milliseconds> time, bool live) {
  const StopRequest stop;
  LiveView view;
  const auto end = time ? Clock::now() + *time : Clock::time_point::max();
  while (!stop.asked()) {
    bool any = true;
    if (live) {
      any = view.draw(processes);
    } else {
      any = false;
      for (CudaProcess& process : processes) any |= process.client->ask(control::kStatus).ok();
    }
    const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
    if (!any || left.count() <= 0 || stop.sleep(std::min(left, milliseconds(1000)))) return;
  }
}

int run(const Options& options) {
  std::optional<milliseconds> time;
  if (!options.time.empty()) {
    const Result<milliseconds> parsed = parse_duration("--for", options.time);
    if (!parsed) return fail(parsed.error());
    time = *parsed;
  }
  const std::string keep = fmt::format("{}", fmt::join(options.keep, ","));
  if (!keep.empty()) {
    if (const Status usable = check_keep(keep); !usable) return fail(usable.error());
  }
  if (!options.overhead.empty()) {
    if (const auto bad = overhead_error(options.overhead)) return fail(*bad);
  }
  Result<std::vector<CudaProcess>> chosen = choose(options.choice);
  if (!chosen) return fail(chosen.error());
  Result<std::vector<CudaProcess>> entered =
      enter_all(std::move(*chosen), entry_options(options.library));
  if (!entered) return fail(entered.error());
  prepare_bridges(*entered, options.quiet);
  const Result<TraceDirectory> directory = make_trace_directory(
      options.directory.empty() ? default_directory() : options.directory, *entered);
  if (!directory) return fail(directory.error());

  ControlRequest request{{"out", directory->path}};
  if (!options.stacks.empty()) request["stacks"] = options.stacks;
  if (!keep.empty()) request["keep"] = keep;
  if (!options.overhead.empty()) request["overhead"] = options.overhead;
  if (options.no_kernels) request["kernels"] = "0";
  // The process also stops by itself, in case this command is killed before then.
  const milliseconds grace(10'000);
  if (time) request["for_ms"] = std::to_string((*time + grace).count());
  Result<std::vector<CudaProcess>> started = start_all(std::move(*entered), request);
  if (!started) {
    if (directory->made) ::rmdir(directory->path.c_str());  // only if nothing is in it
    return fail(started.error());
  }
  if (!options.quiet) {
    for (const CudaProcess& process : *started) {
      print_line(stderr,
                 fmt::format("tidemark: recording {} into {}", process.label(), process.trace));
    }
  }
  if (!time && !options.live) {
    if (!options.quiet) {
      print_line(stderr, fmt::format("tidemark: to stop recording: tidemark detach {}",
                                     started->size() == 1 ? std::to_string(started->front().pid)
                                                          : "--all"));
    }
    return kOk;
  }
  watch(*started, time, options.live);
  const std::vector<std::string> traces = stop_all(*started);
  if (!options.quiet) summarise(traces);
  return kOk;
}

}  // namespace

void add_attach(CLI::App& app, int& code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("attach", "start recording a running process");
  add_choice(*command, options->choice);
  command->add_option("-o,--output", options->directory,
                      "directory for the traces (default: tidemark-TIME-PID)");
  command->add_option("--for", options->time,
                      "recording duration (60s, 5m, 2h); prints a summary at the end");
  command->add_flag("--live", options->live, "show memory use while recording; Ctrl-C stops");
  command
      ->add_option("--stacks", options->stacks,
                   "which call stacks to record: none, python, native or all")
      ->check(CLI::IsMember({"none", "python", "native", "all"}));
  command
      ->add_option("--keep", options->keep,
                   "keep only the last stretch: a duration (10m), a size (512MiB), or both")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_overhead(*command, options->overhead);
  command->add_flag("--no-kernels", options->no_kernels, "do not record kernels");
  command->add_option("--library", options->library,
                      "path of libtidemark.so inside the process's container");
  command->add_flag("-q,--quiet", options->quiet, "do not print a summary at the end");
  command->footer(
      "A process started with tidemark run --arm is contacted over its socket; otherwise the\n"
      "library is injected first. Without --for or --live, recording continues until tidemark\n"
      "detach.\n"
      "Examples:\n"
      "  tidemark attach 4711 --for 60s\n"
      "  tidemark attach 4711 --keep 10m             the last ten minutes, until tidemark detach\n"
      "  tidemark attach 4711 --for 60s --overhead 2%   record kernels in bursts\n"
      "  tidemark attach --job slurm-99.0 -o out --live");
  command->callback([options, &code] { code = run(*options); });
}

}  // namespace tidemark::cli
