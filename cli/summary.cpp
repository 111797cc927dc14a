#include "cli/summary.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <tuple>

#include "analysis/names/stack_lines.h"
#include "analysis/report/report.h"
#include "analysis/wording.h"
#include "cli/command.h"
#include "cli/loss_warnings.h"
#include "cli/terminal.h"
#include "export/report/report_wording.h"

namespace tidemark::cli {

namespace {

// The rank and device with the highest peak of its own: the one that the report names, if it
// compares ranks.
void print_highest(const Report& report) {
  const RankReport* top_rank = nullptr;
  const DeviceReport* top = nullptr;
  const RankComparison& c = report.comparison;
  const auto height = [&](const RankReport& rank, const DeviceReport& d) {
    const uint64_t compared = (c.framework ? d.allocated_peak : d.driver_peak).bytes;
    const bool named = c.compared && rank.rank == c.highest.rank && d.device == c.highest.device &&
                       compared == c.highest.bytes;
    return std::tuple(named, std::max(d.run_reserved_peak().bytes, d.run_driver_peak().bytes),
                      d.device_used_peak.bytes);
  };
  size_t ooms = 0;
  for (const RankReport& rank : report.ranks) {
    for (const DeviceReport& d : rank.devices) {
      ooms += d.oom_count + d.run.earlier_errors;
      if (top == nullptr || height(rank, d) > height(*top_rank, *top)) {
        top = &d;
        top_rank = &rank;
      }
    }
  }
  if (top == nullptr) {
    fmt::print(stderr, "tidemark: no CUDA memory was recorded\n");
    return;
  }
  std::string who = top_rank->rank >= 0 ? fmt::format("rank {}, ", top_rank->rank) : "";
  if (top->has_framework) {
    fmt::print(stderr, "tidemark: {}cuda:{}: allocated peak {}, reserved peak {}\n", who,
               top->device,
               size_text(std::max(top->allocated_peak.bytes, top->run.allocated_peak.bytes)),
               size_text(top->run_reserved_peak().bytes));
  } else {
    fmt::print(stderr, "tidemark: {}cuda:{}: peak of {} allocated from the driver{}\n", who,
               top->device, size_text(top->run_driver_peak().bytes),
               top->before_recording_bytes == 0 ? "" : " since the recording began");
  }
  if (top->device_used_peak.bytes != 0) {
    fmt::print(stderr, "tidemark: peak use of the card {} of {}\n",
               size_text(top->device_used_peak.bytes), size_text(top->total_bytes));
  }
  if (ooms != 0) fmt::print(stderr, "tidemark: {}\n", counted(ooms, "allocation") + " failed");
}

// The most severe finding, and how many more there are.
void print_finding(const Report& report) {
  const auto worth = [](const Finding& f) { return f.severity != kInfo; };
  const auto top = std::find_if(report.findings.begin(), report.findings.end(), worth);
  if (top == report.findings.end()) return;
  const std::string where = place_text(report, *top);
  const auto print = [](const std::string& text) { print_line(stderr, "tidemark: " + text); };
  print(fmt::format("{}: {}{}{}", top->id, where, where.empty() ? "" : ": ", top->summary));
  if (!top->frames.empty()) print("  at " + headline_of(top->frames));
  if (!top->advice.empty()) print("  -> " + top->advice.front().detail);
  const auto more = std::count_if(top + 1, report.findings.end(), worth);
  if (more > 0) print(fmt::format("and {}", counted(static_cast<uint64_t>(more), "more finding")));
}

}  // namespace

std::string default_directory() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[64];
  std::strftime(text, sizeof text, "tidemark-%Y%m%d-%H%M%S", &local);
  return fmt::format("{}-{}", text, ::getpid());
}

void print_summary(const std::string& path) {
  const Result<TraceSource> source = open_trace(path);
  if (!source) {
    fmt::print(stderr, "tidemark: nothing was recorded: the program did not use CUDA\n");
    return;
  }
  for (const std::string& warning : source->warnings) warn(warning);
  const Result<TraceModel> model = load_trace(source->readers);
  if (model) {
    if (const Result<Report> report = make_report(*model, {}); report) {
      fmt::print(stderr, "tidemark: {}, {}\n",
                 report->ranks.size() == 1 ? "1 process"
                                           : fmt::format("{} processes", report->ranks.size()),
                 counted(report->events, "memory event"));
      print_highest(*report);
      print_finding(*report);
      warn_of_losses(*report);
    }
  }
  fmt::print(stderr, "tidemark: for details: tidemark report {}\n", path);
}

}  // namespace tidemark::cli
