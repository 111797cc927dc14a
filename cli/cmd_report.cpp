#include <cstdio>
#include <memory>
#include <optional>

#include "analysis/report/report.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "cli/unit_options.h"
#include "collector/output_guard.h"
#include "export/report/report_html.h"
#include "export/report/report_json.h"
#include "export/report/report_text.h"
#include "proto/base/output_file.h"
#include "proto/base/units.h"
#include "summary/job_report.h"

namespace tidemark::cli {

namespace {

struct Options {
  std::string path;
  std::string at = "peak";
  std::string card;
  std::optional<int64_t> rank;
  size_t stacks = 10;
  bool json = false;
  std::string html;
  std::vector<std::string> fail_on;
  size_t detail = kMostDetailed;
};

// "peak", "oom", "end", or a time since the start: 1.5, 1.5s, 20ms, 300us.
Result<Instant> parse_instant(const std::string& text) {
  if (text == "peak") return Instant{};
  if (text == "oom") return Instant{Instant::Kind::kOom};
  if (text == "end") return Instant{Instant::Kind::kEnd};
  const std::optional<int64_t> ns = parse_duration_ns(text);
  if (!ns) {
    return Error{
        "--at takes peak, oom, end, or a time since the start such as 1.5s or 20ms, not '" + text +
        "'"};
  }
  return Instant{Instant::Kind::kTime, *ns};
}

int print(const Options& options, const Report& report,
          const std::vector<CategoryCurve>& categories) {
  if (!options.html.empty()) {
    const std::string page = report_as_html(report, categories);
    if (Status written = write_file(options.html, page); !written) return fail(written.error());
    std::printf("%s\n", options.html.c_str());
  } else {
    const std::string text =
        options.json
            ? report_as_json(report)
            : report_as_text(report, {stdout_has_colour(), stdout_width(), options.stacks});
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  return failing_findings(report, options.fail_on, false).empty() ? kOk : kNo;
}

FileNotes notes_of(const Options& options) {
  return options.json || !options.html.empty() ? FileNotes::kWarn : FileNotes::kInText;
}

// A job of very many ranks.
int run_by_summaries(const Options& options, const ReportOptions& wanted) {
  Result<JobSummaries> job =
      read_job_with_progress(options.path, wanted.card_bytes, notes_of(options));
  if (!job) return fail(job.error());
  const Result<JobReport> made = make_job_report(*job, wanted, options.detail);
  if (!made) return fail(made.error());
  return print(options, made->report, made->categories);
}

int run(const Options& options) {
  ReportOptions wanted;
  wanted.rank = options.rank;
  wanted.stacks = options.json ? std::max<size_t>(options.stacks, 100) : options.stacks + 1;
  const Result<Instant> at = parse_instant(options.at);
  if (!at) return fail(at.error());
  if (Status known = check_finding_ids(options.fail_on); !known) return fail(known.error());
  wanted.at = *at;
  if (!options.card.empty()) {
    const Result<uint64_t> card = parse_card(options.card);
    if (!card) return fail(card.error());
    wanted.card_bytes = *card;
  }
  if (Status allowed = check_output(options.html, {&options.path, 1}); !allowed) {
    return fail(allowed.error());
  }
  if (!options.html.empty()) wanted.curve_points = 1500;
  if (count_traces(options.path) > options.detail) return run_by_summaries(options, wanted);
  const Result<LoadedTrace> trace = load_with_progress(options.path, notes_of(options));
  if (!trace) return fail(trace.error());
  const std::shared_ptr<Groundwork> ground =
      lay_groundwork(trace->model, compare_ranks(trace->model), wanted.rank);
  std::vector<CategoryCurve> categories;
  if (!options.html.empty()) {
    categories = category_curves(*ground, trace->model.start_ns, trace->model.end_ns, 500);
  }
  const Result<Report> report = make_report(trace->model, wanted, *ground);
  if (!report) return fail(report.error());
  return print(options, *report, categories);
}

}  // namespace

void add_report(CLI::App& app, int& code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("report", "show what filled the memory, and which code allocated it");
  command->add_option("PATH", options->path, "a trace, a directory of traces, or a snapshot")
      ->required();
  command->add_flag("--json", options->json, "print JSON, schema tidemark.report/1");
  command->add_option("--html", options->html, "write one self-contained page to this file")
      ->excludes("--json");
  command
      ->add_option("--fail-on", options->fail_on,
                   "exit 1 if one of these findings has severity warning or error; 'any' for all")
      ->delimiter(',');
  command->add_option("--rank", options->rank, "only this rank");
  command->add_option("--at", options->at, "peak, oom, end, or a time since the start (1.5s, 20ms)")
      ->capture_default_str();
  command->add_option("--card", options->card,
                      "judge what is scarce as if on a card of this size (24GiB)");
  command->add_option("--stacks", options->stacks, "number of stacks to list, largest first")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  command
      ->add_option("--detail", options->detail,
                   "of a job with more traces than this, describe only the ranks that stand out")
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  tidemark report snapshot.pickle.gz\n"
      "  tidemark report run.tmk --at oom\n"
      "  tidemark report run.tmk --html run.html\n"
      "  tidemark report run.tmk --json | jq '.ranks[0].devices[0].allocated_peak'");
  command->callback([options, &code] { code = run(*options); });
}

}  // namespace tidemark::cli
