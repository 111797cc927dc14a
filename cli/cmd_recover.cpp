#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "analysis/wording.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "collector/recover/recovery.h"
#include "proto/read/trace_reader.h"

namespace tidemark::cli {

namespace {

// Nothing was kept beside the trace: what is missing in it cannot be had again.
Status print_state(const std::string& path) {
  const Result<TraceReader> reader = TraceReader::open(path);
  if (!reader) return reader.error();
  const Damage& damage = reader->damage();
  const char* const state =
      damage.truncated    ? "the file ends in the middle of a block; nothing more can be recovered"
      : damage.any()      ? "the file is damaged; nothing more can be recovered"
      : damage.unfinished ? "the recording was interrupted; nothing more can be recovered"
                          : "complete, nothing to do";
  print_line(fmt::format("{}: {}", path, state));
  return {};
}

Status print(const RecoveryReport& report) {
  switch (report.outcome) {
    case RecoveryOutcome::kNothingToDo:
      return print_state(report.path);
    case RecoveryOutcome::kRecovered:
      print_line(fmt::format("{}: recovered {}", report.path, counted(report.rows, "row")));
      break;
    case RecoveryOutcome::kStillRunning:
      print_line(fmt::format("{}: its process is still running; not changed", report.path));
      break;
    case RecoveryOutcome::kElsewhere:
      print_line(fmt::format("{}: its process may still be running on {}; not changed", report.path,
                             report.host));
      break;
    case RecoveryOutcome::kBusy:
      print_line(fmt::format("{}: another process is recovering it", report.path));
      break;
    case RecoveryOutcome::kRingElsewhere:
      print_line(fmt::format(
          "{}: its last rows are on the node that recorded it; run 'tidemark recover' there",
          report.path));
      break;
  }
  return {};
}

void name(const std::string& path) {
  if (const uint64_t frames = name_traces(path); frames != 0) {
    print_line(fmt::format("{}: named {}", path, counted(frames, "native frame")));
  }
}

int run(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    const Result<RecoveryReport> report = recover_file(path, RecoveryBy::kUser);
    if (!report) return fail(report.error());
    if (Status state = print(*report); !state) return fail(state.error());
    name(report->path);
    return kOk;
  }
  const Result<DirectoryRecovery> all = recover_directory(path, RecoveryBy::kUser);
  if (!all) return fail(all.error());
  int code = kOk;
  for (const RecoveryReport& report : all->files) {
    if (Status state = print(report); !state) code = fail(state.error());
  }
  if (all->files.empty() && all->failures.empty())
    print_line(fmt::format("{}: nothing to recover", path));
  name(path);
  for (const Error& failure : all->failures) code = fail(failure);
  return code;
}

}  // namespace

void add_recover(CLI::App& app, int& code) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("recover", "finish the traces of killed processes");
  command->add_option("PATH", *path, "a trace or a directory of traces")->required();
  command->footer(
      "Commands that read a trace also do this for processes of this machine. In addition, this\n"
      "command finishes the traces of processes on other machines that have not written anything\n"
      "for two minutes, and writes the names of native functions into the traces, so that they\n"
      "can be read on another machine.\n"
      "Example:\n  tidemark recover out/");
  command->callback([path, &code] { code = run(*path); });
}

}  // namespace tidemark::cli
