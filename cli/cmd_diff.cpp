#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "analysis/report/diff.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "export/report/diff_text.h"
#include "export/report/loss_lines.h"
#include "summary/job_report.h"

namespace tidemark::cli {

namespace {

struct Options {
  std::string before;
  std::string after;
  std::optional<int64_t> rank;
  std::optional<int64_t> other_rank;
  size_t stacks = 10;
  bool json = false;
  size_t detail = kMostDetailed;
};

Result<Report> full_report(const std::string& path, std::optional<int64_t> rank,
                           const Options& options) {
  const FileNotes notes = options.json ? FileNotes::kWarn : FileNotes::kInText;
  ReportOptions wanted;
  wanted.rank = rank;
  wanted.stacks = SIZE_MAX;
  wanted.absent_stacks = true;  // a line that both runs have is not paired with another one
  if (count_traces(path) > options.detail) {
    Result<JobSummaries> job = read_job_with_progress(path, 0, notes);
    if (!job) return job.error();
    // The ranks that stand out are read in detail for the findings that compare ranks.
    Result<JobReport> made = make_job_report(*job, wanted, kMostDetailed);
    if (!made) return made.error();
    for (RankReport& r : made->report.ranks) r.detailed &= rank.has_value();
    return std::move(made->report);
  }
  const Result<LoadedTrace> trace = load_with_progress(path, notes);
  if (!trace) return trace.error();
  return make_report(trace->model, wanted);
}

int run(const Options& options) {
  const Result<Report> before = full_report(options.before, options.rank, options);
  if (!before) return fail(before.error());
  const auto rank = options.other_rank ? options.other_rank : options.rank;
  const Result<Report> after = full_report(options.after, rank, options);
  if (!after) return fail(after.error());
  Result<Diff> diff = compare(*before, *after);
  if (!diff) return fail(diff.error());
  for (const auto& [side, report] : {std::pair("before", &*before), std::pair("after", &*after)}) {
    for (const std::string& text : loss_lines(*report)) {
      diff->losses.push_back(fmt::format("{}: {}", side, text));
    }
  }
  const std::string text =
      options.json ? diff_as_json(*diff)
                   : diff_as_text(*diff, {stdout_has_colour(), stdout_width(), options.stacks});
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kOk;
}

}  // namespace

void add_diff(CLI::App& app, int& code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("diff", "compare two runs or two ranks: what grew, by stack and category");
  command->add_option("BEFORE", options->before, "a trace, a directory, or a snapshot")->required();
  command->add_option("AFTER", options->after, "the run to compare with BEFORE")->required();
  command->add_option("--rank", options->rank, "compare only this rank");
  command
      ->add_option("--other-rank", options->other_rank,
                   "rank of AFTER to compare with (default: --rank)")
      ->needs(command->get_option("--rank"));
  command->add_option("--stacks", options->stacks, "number of stacks to list")
      ->capture_default_str();
  command->add_flag("--json", options->json, "print JSON, schema tidemark.diff/1");
  command
      ->add_option("--detail", options->detail,
                   "compare the ranks of a job with more traces than this without their stacks")
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  tidemark diff yesterday.tmk today.tmk\n"
      "  tidemark diff job/ job/ --rank 1 --other-rank 0     what rank 0 holds and rank 1 does "
      "not");
  command->callback([options, &code] { code = run(*options); });
}

}  // namespace tidemark::cli
