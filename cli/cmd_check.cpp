#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "analysis/wording.h"
#include "cli/command.h"
#include "cli/unit_options.h"

namespace tidemark::cli {

namespace {

struct Options {
  std::string path;
  std::string max_peak;
  std::string baseline;
  double max_growth = 5;
  std::vector<std::string> fail_on;
};

// The most memory that a device needed: the allocator's segments or the driver's allocations.
uint64_t peak_of(const Report& report) {
  uint64_t peak = 0;
  for (const RankReport& rank : report.ranks) {
    for (const DeviceReport& d : rank.devices) {
      peak = std::max({peak, d.reserved_peak.bytes, d.driver_peak.bytes});
    }
  }
  return peak;
}

Result<Report> report_on(const std::string& path) {
  const Result<LoadedTrace> trace = load_with_progress(path);
  if (!trace) return trace.error();
  return make_report(trace->model, {});
}

bool say(bool good, const std::string& text) {
  fmt::print("{} {}\n", good ? "ok    " : "FAILED", text);
  return good;
}

int run(const Options& options) {
  std::optional<uint64_t> max_peak;
  if (!options.max_peak.empty()) {
    const Result<uint64_t> size = parse_size("--max-peak", options.max_peak);
    if (!size) return fail(size.error());
    max_peak = *size;
  }
  if (Status known = check_finding_ids(options.fail_on); !known) return fail(known.error());
  const Result<Report> report = report_on(options.path);
  if (!report) return fail(report.error());
  const uint64_t peak = peak_of(*report);
  bool good = true;
  if (max_peak) {
    good &= say(peak <= *max_peak,
                fmt::format("peak {}, limit {}", size_text(peak), size_text(*max_peak)));
  }
  if (!options.baseline.empty()) {
    const Result<Report> baseline = report_on(options.baseline);
    if (!baseline) return fail(baseline.error());
    const uint64_t before = peak_of(*baseline);
    if (before == 0)
      return fail(
          {options.baseline + ": no memory was recorded, so there is no peak to compare with"});
    const double growth = 100 * (static_cast<double>(peak) / static_cast<double>(before) - 1);
    good &= say(growth <= options.max_growth,
                fmt::format("peak {}, baseline {}: {:+.1f} %, limit {:+.1f} %", size_text(peak),
                            size_text(before), growth, options.max_growth));
  }
  const bool alone = !max_peak && options.baseline.empty();
  for (const Finding& f : failing_findings(*report, options.fail_on, alone)) {
    good = say(false, f.id + ": " + f.summary) && good;
  }
  if (good && (alone || !options.fail_on.empty())) say(true, "no failing findings");
  return good ? kOk : kNo;
}

}  // namespace

void add_check(CLI::App& app, int& code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("check", "for CI: exit 1 when a run needs too much memory");
  command->add_option("PATH", options->path, "a trace, a directory of traces, or a snapshot")
      ->required();
  command->add_option(
      "--max-peak", options->max_peak,
      "highest peak allowed (40GiB): reserved by PyTorch, or allocated from the driver");
  command->add_option("--baseline", options->baseline, "a run to compare the peak with");
  command
      ->add_option("--max-growth", options->max_growth,
                   "highest growth over the baseline allowed, in percent")
      ->capture_default_str()
      ->needs(command->get_option("--baseline"));
  command
      ->add_option("--fail-on", options->fail_on,
                   "fail if one of these findings has severity warning or error; 'any' for all")
      ->delimiter(',');
  command->footer(
      "Without options, findings of severity error fail the check.\n"
      "Examples:\n"
      "  tidemark check run.tmk --max-peak 40GiB\n"
      "  tidemark check run.tmk --baseline main.tmk --max-growth 3\n"
      "  tidemark check run.tmk --fail-on creep,retained_graph,fragmentation");
  command->callback([options, &code] { code = run(*options); });
}

}  // namespace tidemark::cli
