#include "cli/summary.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <set>
#include <tuple>
#include <utility>

#include "analysis/names/stack_lines.h"
#include "analysis/report/report.h"
#include "analysis/wording.h"
#include "cli/command.h"
#include "cli/loss_warnings.h"
#include "cli/terminal.h"
#include "export/report/report_wording.h"
#include "proto/read/block_decoder.h"

namespace tidemark::cli {

namespace fs = std::filesystem;

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
                      d.run_device_used_peak().bytes);
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
  if (top->run_device_used_peak().bytes != 0) {
    fmt::print(stderr, "tidemark: peak use of the card {} of {}\n",
               size_text(top->run_device_used_peak().bytes), size_text(top->total_bytes));
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

// Whether a process of this trace was started with this value of kRunVariable, which is random.
bool recorded_in(const TraceReader& reader, const std::string& run) {
  BlockDecoder decoder(reader);
  std::set<std::pair<uint32_t, uint32_t>> values;  // process and string
  for_each_block<Setting>(reader, decoder, 0, [&](auto rows, const BlockRef& ref) {
    for (const Setting& s : rows) values.insert({ref.process, s.value});
  });
  bool found = false;
  for (const BlockRef& ref : reader.blocks()) {
    if (ref.kind != BlockKind::kStrings) continue;
    decoder.strings(ref, [&](uint32_t id, std::string_view text) {
      found |= text == run && values.contains({ref.process, id});
    });
  }
  return found;
}

size_t traces_in(const std::string& directory) {
  std::error_code error;
  const fs::directory_iterator entries(directory, error);
  return static_cast<size_t>(std::count_if(begin(entries), end(entries), [](const auto& entry) {
    return entry.path().extension() == ".tmk";
  }));
}

// A recorder that cannot start says why on the program's stderr.
std::string why_nothing(const std::string& directory) {
  constexpr uint64_t kLeast = 8 << 20;  // less than the smallest buffer of a recorder
  std::error_code error;
  const std::string place = fs::exists(directory, error) ? directory : ".";
  const fs::space_info space = fs::space(place, error);
  if (!error && space.available < kLeast) {
    return fmt::format("{} are free for {}", size_text(space.available), directory);
  }
  return "the program did not use CUDA, or the recorder could not start (it says why above)";
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

std::vector<std::string> traces_of_run(const std::string& directory, const std::string& run) {
  std::vector<std::string> traces;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    if (entry.path().extension() != ".tmk") continue;
    const Result<TraceReader> reader = TraceReader::open(entry.path().string());
    if (reader && recorded_in(*reader, run)) traces.push_back(entry.path().string());
  }
  return traces;
}

void print_summary(const std::string& directory, const std::vector<std::string>& traces) {
  const Result<TraceSource> source = open_traces(traces);
  if (!source) {
    print_line(stderr, "tidemark: nothing was recorded: " + why_nothing(directory));
    return;
  }
  for (const std::string& warning : source->warnings) warn(warning);
  Result<TraceModel> model = load_trace(source->readers);
  if (model) {
    model->path = traces.size() == 1 ? traces.front() : directory;
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
  const bool alone = traces_in(directory) == traces.size();
  if (!alone && traces.size() > 1) {
    warn(directory +
         ": has traces of other runs too, so a report on it is not only on this run; use "
         "a directory for each run");
  }
  print_line(stderr, "tidemark: for details: tidemark report " +
                         (alone || traces.size() > 1 ? directory : traces.front()));
}

}  // namespace tidemark::cli
