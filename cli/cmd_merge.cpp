#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "analysis/wording.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "collector/job/merge.h"
#include "collector/output_guard.h"
#include "proto/read/trace_reader.h"

namespace tidemark::cli {

namespace {

namespace fs = std::filesystem;

// The trace of an earlier merge may be replaced: in a directory it is not read as an input.
bool is_earlier_merge(const std::string& path) {
  const Result<TraceReader> reader = TraceReader::open(path);
  return reader && std::any_of(reader->blocks().begin(), reader->blocks().end(),
                               [](const BlockRef& b) { return b.kind == BlockKind::kAlignments; });
}

Status check_merged(const MergeOptions& options) {
  std::vector<std::string> inputs = options.inputs;
  if (is_earlier_merge(options.output)) {
    std::error_code error;
    std::erase_if(inputs, [&](const std::string& path) { return fs::is_directory(path, error); });
  }
  return check_output(options.output, inputs);
}

int run(MergeOptions options) {
  if (Status allowed = check_merged(options); !allowed) return fail(allowed.error());
  const Result<MergeReport> report = [&] {
    ProgressBar bar("merging");
    options.progress = [&](double share) { bar.set(share); };
    return merge_traces(options);
  }();
  if (!report) return fail(report.error());
  for (const std::string& note : report->notes) warn(note);
  print_line(fmt::format(
      "{}: {} from {}, {}, {}", options.output,
      report->processes == 1 ? "1 process" : fmt::format("{} processes", report->processes),
      counted(report->files, "file"), counted(report->rows, "row"), size_text(report->bytes)));
  if (report->aligned != 0) {
    const std::string within =
        report->residual_ns == 0
            ? ""
            : ", within " + duration_text(static_cast<int64_t>(report->residual_ns));
    print_line("clocks aligned by collectives" + within);
  }
  return kOk;
}

}  // namespace

void add_merge(CLI::App& app, int& code) {
  auto options = std::make_shared<MergeOptions>();
  CLI::App* command =
      app.add_subcommand("merge", "merge the ranks of a job into one trace, on one clock");
  command->add_option("PATH", options->inputs, "traces or snapshots, or directories of them")
      ->required();
  command->add_option("-o,--output", options->output, "trace to write")->required();
  command
      ->add_option("-j,--jobs", options->threads, "number of threads (default: one per processor)")
      ->check(CLI::Range(1, 256));
  command->footer(
      "Truncated, damaged or missing files do not stop the merge: they are listed during the "
      "merge\n"
      "and in every report on the merged trace. Traces of several jobs are not merged.\n"
      "Example:\n  tidemark merge out/ -o job.tmk");
  command->callback([options, &code] { code = run(*options); });
}

}  // namespace tidemark::cli
