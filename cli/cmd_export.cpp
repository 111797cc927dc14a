#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "analysis/insight/categories/categories.h"
#include "analysis/wording.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "cli/unit_options.h"
#include "collector/output_guard.h"
#include "export/page/page_export.h"
#include "export/perfetto/perfetto_export.h"
#include "export/snapshot/snapshot_export.h"
#include "export/tables/csv_tables.h"
#include "export/tables/parquet_tables.h"
#include "export/tables/sqlite_tables.h"
#include "proto/base/output_file.h"
#include "proto/base/units.h"

namespace tidemark::cli {

namespace {

struct Options {
  std::string path;
  std::string format;
  std::string output;
  std::string time;
  std::vector<int64_t> ranks;
  std::vector<uint32_t> processes;
  std::string max_size;
  bool events = false;
  std::string job;
  bool append = false;
};

// The largest file that ui.perfetto.dev opens without trouble.
constexpr uint64_t kPerfettoLimit = uint64_t{1} << 30;

// "1.5s..3s", "..20ms", "1s..": since the start of the trace.
Result<TimeRange> parse_time(const std::string& text, int64_t start_ns) {
  if (text.empty()) return TimeRange{};
  TimeRange range{start_ns, INT64_MAX};
  const Error error{"--time takes a time range such as 1.5s..3s or 20ms.., not '" + text + "'"};
  const size_t dots = text.find("..");
  if (dots == std::string::npos) return error;
  const std::string_view first = std::string_view(text).substr(0, dots);
  const std::string_view last = std::string_view(text).substr(dots + 2);
  if (!first.empty()) {
    const std::optional<int64_t> ns = parse_duration_ns(first);
    if (!ns) return error;
    range.begin_ns += *ns;
  }
  if (!last.empty()) {
    const std::optional<int64_t> ns = parse_duration_ns(last);
    if (!ns) return error;
    range.end_ns = start_ns + *ns;
  }
  if (range.begin_ns > range.end_ns) return error;
  return range;
}

Result<uint64_t> size_limit(const Options& options) {
  if (!options.max_size.empty()) return parse_size("--max-size", options.max_size);
  return options.format == "perfetto" ? kPerfettoLimit : UINT64_MAX;
}

// Whether the output can be written at all, checked before a long trace is read.
Status check_writable(const Options& options) {
  if (Status allowed = check_output(options.output, {&options.path, 1}); !allowed) return allowed;
  if (options.format == "html") {
    if (const Result<std::string> page = find_viewer_page(); !page) return page.error();
  }
  if (options.format == "parquet") return {};
  if (options.format == "csv") {
    if (options.output.empty()) return Error{"the output directory needs a name"};
    for (const std::string& name : csv_file_names()) {
      const std::string file = options.output + '/' + name;
      if (Status allowed = check_output(file, {&options.path, 1}); !allowed) return allowed;
    }
    return {};
  }
  const Result<OutputFile> file = OutputFile::create(options.output);
  return file ? Status() : Status(file.error());
}

Result<ExportSummary> write(const Options& options, const ExportInput& input,
                            const ExportOptions& wanted) {
  ProgressBar bar("exporting");
  const Progress progress = [&](double share) { bar.set(share); };
  if (options.format == "perfetto") {
    return export_perfetto(input, wanted, options.output, progress);
  }
  if (options.format == "sqlite") return export_sqlite(input, wanted, options.output, progress);
  if (options.format == "csv") return export_csv(input, wanted, options.output, progress);
  if (options.format == "parquet") {
    return export_parquet(input, wanted, {options.job, options.append}, options.output, progress);
  }
  if (options.format == "html") {
    const Result<std::string> page = find_viewer_page();
    if (!page) return page.error();
    return export_page(input, wanted, {*page, ""}, options.output, progress);
  }
  return export_snapshot(input, wanted, options.output, progress);
}

// The report's reserved peak is that of the driver's pool, of which only samples are known.
void warn_of_pools(const TraceModel& model) {
  const bool any = std::any_of(model.processes.begin(), model.processes.end(),
                               [](const ProcessModel& p) { return !p.torch_pools.empty(); });
  if (!any) return;
  warn(
      "the backend cudaMallocAsync has no segments: each block is shown as one, so that reserved "
      "is what is allocated, without what the driver's pool keeps; only the reserved peak includes "
      "that");
}

// What is exported may be the last stretch of a run, and its peak not the highest of the run.
void warn_of_window(const Report& report) {
  uint64_t kept = 0;
  uint64_t run = 0;
  bool is_window = false;
  for (const RankReport& rank : report.ranks) {
    for (const DeviceReport& d : rank.devices) {
      is_window |= d.run.is_window();
      kept = std::max({kept, d.reserved_peak.bytes, d.driver_peak.bytes});
      run = std::max({run, d.run_reserved_peak().bytes, d.run_driver_peak().bytes});
    }
  }
  if (!is_window || run <= kept) return;
  warn(fmt::format("this is a kept window: the highest peak in it is {}, that of the whole run {}",
                   size_text(kept), size_text(run)));
}

int run(const Options& options) {
  if (options.format != "parquet" && (options.append || !options.job.empty())) {
    return fail(Error{"--append and --job are for --format parquet"});
  }
  const Result<uint64_t> limit = size_limit(options);
  if (!limit) return fail(limit.error());
  if (const Result<TimeRange> time = parse_time(options.time, 0); !time) return fail(time.error());
  if (const Status writable = check_writable(options); !writable) return fail(writable.error());
  Result<LoadedTrace> trace = load_with_progress(options.path);
  if (!trace) return fail(trace.error());
  TraceModel& model = trace->model;
  warn_of_losses(model);
  const Result<Report> report = make_report(model, {});
  if (!report) return fail(report.error());
  infer_categories(model);
  ExportOptions wanted;
  wanted.time = *parse_time(options.time, model.start_ns);
  if (wanted.time.begin_ns > model.end_ns) {
    return fail(Error{fmt::format("--time {} begins after the end of the trace, which is {} long",
                                  options.time, duration_text(model.end_ns - model.start_ns))});
  }
  wanted.ranks = options.ranks;
  wanted.processes = options.processes;
  wanted.max_bytes = *limit;
  wanted.events = options.events;
  const Result<ExportSummary> summary =
      write(options, {model, trace->source.readers, &*report}, wanted);
  if (!summary) return fail(summary.error());
  for (const std::string& note : summary->notes) warn(note);
  warn_of_pools(model);
  warn_of_window(*report);
  print_line(fmt::format("{} ({}{})", options.output, size_text(summary->bytes),
                         options.append ? " added" : ""));
  return kOk;
}

}  // namespace

void add_export(CLI::App& app, int& code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "export", "convert a trace: a page with the viewer, Perfetto, SQL, memory_viz");
  command->add_option("PATH", options->path, "a trace, a directory of traces, or a snapshot")
      ->required();
  command
      ->add_option("--format", options->format,
                   "html (the viewer with the trace inside), perfetto, sqlite, csv (a directory), "
                   "parquet (a data set of jobs) or snapshot")
      ->required()
      ->check(CLI::IsMember({"html", "perfetto", "sqlite", "csv", "parquet", "snapshot"}));
  command->add_option("-o,--output", options->output, "file to write (csv, parquet: directory)")
      ->required();
  command->add_option("--time", options->time,
                      "only this time range, relative to the start (1.5s..3s, 20ms..)");
  command->add_option("--ranks", options->ranks, "only these ranks (0,3)")->delimiter(',');
  command
      ->add_option("--processes", options->processes,
                   "only these processes, for those without a rank: numbers from 1, in the order "
                   "of tidemark info")
      ->delimiter(',');
  command->add_option("--max-size", options->max_size,
                      "perfetto: thin the curves to stay below this size (default 1GiB); other "
                      "formats: fail if larger");
  command->add_flag(
      "--events", options->events,
      "sqlite, csv, parquet: also write every event with the totals after it (large)");
  command->add_flag("--append", options->append, "parquet: add the job to an existing data set");
  command->add_option("--job", options->job,
                      "parquet: the name of the job (default: as it was launched, or the trace's)");
  command->footer(
      "Examples:\n"
      "  tidemark export run.tmk --format html -o run.html            open in a browser\n"
      "  tidemark export run.tmk --format perfetto -o run.pftrace     open in ui.perfetto.dev\n"
      "  tidemark export run/ --format sqlite -o run.db --ranks 0,3\n"
      "  tidemark export run/ --format parquet -o fleet --append      for DuckDB, Spark, pandas\n"
      "  tidemark export run.tmk --format snapshot -o run.pickle      pytorch.org/memory_viz");
  command->callback([options, &code] { code = run(*options); });
}

}  // namespace tidemark::cli
