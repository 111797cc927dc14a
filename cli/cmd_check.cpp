#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "analysis/wording.h"
#include "cli/command.h"
#include "cli/loss_warnings.h"
#include "cli/terminal.h"
#include "cli/unit_options.h"
#include "export/report/report_wording.h"

namespace tidemark::cli {

namespace {

struct Options {
  std::string path;
  std::string max_peak;
  std::string baseline;
  double max_growth = 5;
  std::vector<std::string> fail_on;
  bool allow_oom = false;
};

// The most memory that a device needed: what PyTorch reserved or, if that is more, what the driver
// allocated for the process.
struct HighestPeak {
  uint64_t bytes = 0;
  std::string name;  // "reserved peak of rank 1 cuda:0"
};

HighestPeak highest_peak(const Report& report) {
  HighestPeak highest;
  for (const RankReport& rank : report.ranks) {
    for (const DeviceReport& d : rank.devices) {
      const bool reserved = d.reserved_peak.bytes >= d.driver_peak.bytes;
      const uint64_t bytes = reserved ? d.reserved_peak.bytes : d.driver_peak.bytes;
      if (bytes <= highest.bytes) continue;
      highest = {bytes,
                 fmt::format("{} of {}cuda:{}", reserved ? "reserved peak" : "driver peak",
                             rank.rank >= 0 ? fmt::format("rank {} ", rank.rank) : "", d.device)};
    }
  }
  return highest;
}

// Devices that ran out of memory. A request that the driver refused is none if PyTorch freed its
// cache and tried again, or if the program got the memory later: then there is no finding.
std::vector<std::string> out_of_memory(const Report& report) {
  std::vector<std::string> devices;
  for (const RankReport& rank : report.ranks) {
    for (const DeviceReport& d : rank.devices) {
      const bool in_torch = std::any_of(d.ooms.begin(), d.ooms.end(), [](const OomReport& o) {
        return o.layer != Layer::kDriver;
      });
      const bool in_driver =
          !d.ooms.empty() &&
          std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& f) {
            return f.id == "capacity" && f.rank == rank.rank && f.device == d.device;
          });
      if (!in_torch && !in_driver) continue;
      devices.push_back(fmt::format(
          "{}cuda:{}", rank.rank >= 0 ? fmt::format("rank {} ", rank.rank) : "", d.device));
    }
  }
  return devices;
}

Result<Report> report_on(const std::string& path) {
  const Result<LoadedTrace> trace = load_with_progress(path);
  if (!trace) return trace.error();
  return make_report(trace->model, {});
}

bool say(bool good, const std::string& text) {
  print_line(fmt::format("{} {}", good ? "ok    " : "FAILED", text));
  return good;
}

// Whether the peak is within its limit over the baseline.
Result<bool> check_growth(const Options& options, const HighestPeak& peak) {
  const Result<Report> baseline = report_on(options.baseline);
  if (!baseline) return baseline.error();
  warn_of_losses(*baseline);
  const HighestPeak before = highest_peak(*baseline);
  if (before.bytes == 0) return Error{options.baseline + ": has no peak to compare with"};
  const double growth =
      100 * (static_cast<double>(peak.bytes) / static_cast<double>(before.bytes) - 1);
  return say(growth <= options.max_growth,
             fmt::format("{} {}, baseline {} {}: {:+.1f} %, limit {:+.1f} %", peak.name,
                         size_text(peak.bytes), before.name, size_text(before.bytes), growth,
                         options.max_growth));
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
  warn_of_losses(*report);
  const HighestPeak peak = highest_peak(*report);
  const std::vector<std::string> ran_out = out_of_memory(*report);
  if (peak.bytes == 0 && (ran_out.empty() || options.allow_oom)) {
    return fail({options.path + ": no memory use was recorded, so there is nothing to check"});
  }
  bool good = true;
  if (!ran_out.empty() && !options.allow_oom) {
    good = say(false, fmt::format("out of memory on {}", fmt::join(ran_out, ", ")));
  }
  if (max_peak) {
    good &= say(peak.bytes <= *max_peak, fmt::format("{} {}, limit {}", peak.name,
                                                     size_text(peak.bytes), size_text(*max_peak)));
  }
  if (!options.baseline.empty()) {
    const Result<bool> grown = check_growth(options, peak);
    if (!grown) return fail(grown.error());
    good &= *grown;
  }
  const bool alone = !max_peak && options.baseline.empty() && !options.allow_oom;
  for (const Finding& f : failing_findings(*report, options.fail_on, alone)) {
    const std::string where = place_text(*report, f);
    good = say(false,
               fmt::format("{}{}{}: {}", f.id, where.empty() ? "" : " on ", where, f.summary)) &&
           good;
  }
  const bool only_findings = !max_peak && options.baseline.empty();
  if (good && (only_findings || !options.fail_on.empty())) say(true, "no failing findings");
  return good ? kOk : kNo;
}

}  // namespace

void add_check(CLI::App& app, int& code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("check", "for CI: exit 1 when a run needs too much memory");
  command->add_option("PATH", options->path, "a trace, a directory of traces, or a snapshot")
      ->required();
  command->add_option("--max-peak", options->max_peak,
                      "limit for the highest peak of a device (40GiB): the reserved peak or, if it "
                      "is higher, the driver peak");
  command->add_option("--baseline", options->baseline, "a run whose peak to compare with");
  command
      ->add_option("--max-growth", options->max_growth,
                   "highest growth over the baseline allowed, in percent")
      ->capture_default_str()
      ->needs(command->get_option("--baseline"));
  command
      ->add_option("--fail-on", options->fail_on,
                   "fail if one of these findings has severity warning or error; 'any' for all")
      ->delimiter(',');
  command->add_flag("--allow-oom", options->allow_oom,
                    "running out of memory does not fail the check");
  command->footer(
      "A run that ran out of memory fails the check. Without options, all findings of severity\n"
      "error do. Exit status 2: nothing was measured, or the input could not be read.\n"
      "Examples:\n"
      "  tidemark check run.tmk --max-peak 40GiB\n"
      "  tidemark check run.tmk --baseline main.tmk --max-growth 3\n"
      "  tidemark check run.tmk --fail-on creep,retained_graph,fragmentation");
  command->callback([options, &code] { code = run(*options); });
}

}  // namespace tidemark::cli
