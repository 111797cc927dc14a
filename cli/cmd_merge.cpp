#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "analysis/wording.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "collector/job/merge.h"

namespace tidemark::cli {

namespace {

int run(MergeOptions options) {
  const Result<MergeReport> report = [&] {
    ProgressBar bar("merging");
    options.progress = [&](double share) { bar.set(share); };
    return merge_traces(options);
  }();
  if (!report) return fail(report.error());
  for (const std::string& note : report->notes) warn(note);
  fmt::print("{}: {} from {}, {}, {}\n", options.output,
             report->processes == 1 ? "1 process" : fmt::format("{} processes", report->processes),
             counted(report->files, "file"), counted(report->rows, "row"),
             size_text(report->bytes));
  if (report->aligned > 1) {
    fmt::print("clocks aligned by collectives, within {}\n",
               duration_text(static_cast<int64_t>(report->residual_ns)));
  }
  return kOk;
}

}  // namespace

void add_merge(CLI::App& app, int& code) {
  auto options = std::make_shared<MergeOptions>();
  CLI::App* command =
      app.add_subcommand("merge", "merge the ranks of a job into one trace, on one clock");
  command->add_option("PATH", options->inputs, "traces, or directories of them")->required();
  command->add_option("-o,--output", options->output, "trace to write")->required();
  command
      ->add_option("-j,--jobs", options->threads, "number of threads (default: one per processor)")
      ->check(CLI::Range(1, 256));
  command->footer(
      "Truncated, damaged or missing files, and files of another job, do not stop the merge: they\n"
      "are listed during the merge and in every report on the merged trace.\n"
      "Example:\n  tidemark merge out/ -o job.tmk");
  command->callback([options, &code] { code = run(*options); });
}

}  // namespace tidemark::cli
