#include "export/report/report_wording.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "analysis/report/restarts.h"
#include "analysis/wording.h"
#include "export/report/loss_lines.h"
#include "export/report/rank_report.h"

namespace tidemark {

std::string offset_text(int64_t ns) {
  return (ns < 0 ? "" : "+") + duration_text(ns);
}

// To the microsecond, in the units of offset_text().
static std::string exact_offset_text(int64_t ns) {
  const int64_t magnitude = std::abs(ns);
  if (magnitude < 1'000'000'000) {
    return fmt::format("{:+.3f} ms", static_cast<double>(ns) * 1e-6);
  }
  const int64_t minutes = magnitude / 60'000'000'000;
  if (minutes < 2) return fmt::format("{:+.6f} s", static_cast<double>(ns) * 1e-9);
  const double rest = static_cast<double>(magnitude % 60'000'000'000) * 1e-9;
  const char sign = ns < 0 ? '-' : '+';
  if (minutes < 120) return fmt::format("{}{} min {:.6f} s", sign, minutes, rest);
  return fmt::format("{}{} h {} min {:.6f} s", sign, minutes / 60, minutes % 60, rest);
}

std::string holes_time_text(const DeviceReport& device, int64_t start_ns) {
  const int64_t time_ns = device.fragmentation.time_ns - start_ns;
  const std::string text = offset_text(time_ns);
  const bool looks_same = text == offset_text(device.at_ns - start_ns);
  if (!looks_same || device.fragmentation.time_ns == device.at_ns) return text;
  return exact_offset_text(time_ns);
}

// What the driver's peak lacks.
static std::string lacking_text(const DeviceReport& device) {
  const std::optional<uint64_t> bytes = device.before_recording_bytes;
  const std::string pool =
      device.pool_cache_bytes == 0
          ? ""
          : fmt::format(", without {} that the pool keeps", size_text(device.pool_cache_bytes));
  if (!bytes) return pool + ", at least: what is older than the recording is not in it";
  if (*bytes == 0) return pool;
  return fmt::format("{}, at least: up to {} older than the recording are not in it", pool,
                     size_text(*bytes));
}

std::string instant_text(const DeviceReport& device, int64_t start_ns) {
  if (device.state_only) return "when the snapshot was taken";
  return "at " + offset_text(device.at_ns - start_ns);
}

// A size on a line that shows another: in bytes, if the two would look the same.
static std::string size_beside(uint64_t shown, uint64_t bytes) {
  const std::string text = size_text(bytes);
  return text == size_text(shown) ? grouped(bytes) + " bytes" : text;
}

// Which of the peaks of a kept window is that of the whole run, if it is known.
static std::string run_text(const DeviceReport& device, const Peak& kept, const Peak& run) {
  if (!device.run.is_window()) return "";
  if (run.bytes == 0) return ", in the kept window";
  if (run.bytes <= kept.bytes) return ", also of the whole run";
  return fmt::format(", in the kept window; {} in the whole run",
                     size_beside(kept.bytes, run.bytes));
}

// Readings miss short peaks, but the card has at least what the driver allocated for this process.
static std::string run_text_of_card(const DeviceReport& device) {
  const WholeRun& run = device.run;
  if (!run.is_window()) return "";
  if (run.device_used_peak.bytes == 0) return ", in the kept window";
  const uint64_t kept = device.device_used_peak.bytes;
  if (run.driver_peak.bytes >= run.device_used_peak.bytes && run.driver_peak.bytes > kept) {
    return fmt::format(", in the kept window; at least {} in the whole run",
                       size_beside(kept, run.driver_peak.bytes));
  }
  if (run.device_used_peak.bytes <= kept) return ", also the highest reading of the whole run";
  return fmt::format(", in the kept window; {} in the whole run",
                     size_beside(kept, run.device_used_peak.bytes));
}

static std::string sampling_text(const DeviceReport& device) {
  const uint64_t peak = device.device_used_peak.bytes;
  const uint64_t reading = device.highest_reading_bytes;
  if (peak == reading) return "";
  return ", at least: held by this process; highest reading " + size_beside(peak, reading);
}

// Of a history that began late nobody knows what came before.
static std::string torch_text(const DeviceReport& device, const Peak& kept, const Peak& run) {
  return device.began_late ? ", in the recorded part" : run_text(device, kept, run);
}

std::vector<NamedPeak> peaks_of(const DeviceReport& device) {
  const bool state = device.state_only;
  std::vector<NamedPeak> peaks;
  if (device.has_framework) {
    const bool with_pending = device.requested_peak.bytes > device.allocated_peak.bytes;
    const std::string pending = with_pending ? ", pending frees included" : "";
    peaks = {{state ? "allocated" : "allocated peak", device.allocated_peak,
              torch_text(device, device.allocated_peak, device.run.allocated_peak)},
             {state ? "requested" : "requested peak", device.requested_peak,
              pending + torch_text(device, device.requested_peak, {})},
             {state ? "reserved" : "reserved peak", device.reserved_peak,
              torch_text(device, device.reserved_peak, device.run.reserved_peak)}};
    if (device.requested_peak.bytes == 0) peaks.erase(peaks.begin() + 1);
  }
  if (device.driver_peak.bytes != 0) {
    peaks.push_back(
        {state ? "driver" : "driver peak", device.driver_peak,
         lacking_text(device) + run_text(device, device.driver_peak, device.run.driver_peak)});
  }
  if (device.device_used_peak.bytes != 0) {
    peaks.push_back({state ? "card used" : "card used peak", device.device_used_peak,
                     sampling_text(device) + run_text_of_card(device)});
  }
  return peaks;
}

std::string whole_run_text(const DeviceReport& device, const Report& report) {
  const WholeRun& run = device.run;
  // The last point of the curve may be older than the last steps, which the window has.
  uint64_t steps = run.parts.back().steps;
  if (steps != 0 && device.steps.before) {
    steps = std::max<uint64_t>(steps, *device.steps.before + device.steps.count);
  }
  return fmt::format("Whole run: {}{}; events are kept of the last {}",
                     duration_text(run.end_ns() - run.begin_ns()),
                     steps == 0 ? "" : ", " + counted(steps, "step"),
                     duration_text(report.end_ns - report.start_ns));
}

std::string step_numbers_text(const StepReport& steps) {
  if (!steps.before) return ", in the kept window";
  if (*steps.before == 0 || steps.count == 0) return "";
  return fmt::format("; {} to {} of the run", grouped(*steps.before),
                     grouped(*steps.before + steps.count - 1));
}

std::string earlier_errors_text(const DeviceReport& device) {
  return counted(device.run.earlier_errors, "out-of-memory error") + " before the kept window";
}

bool names_device(const Report& report, const Finding& finding) {
  return std::any_of(report.ranks.begin(), report.ranks.end(), [&](const RankReport& rank) {
    return rank.rank == finding.rank && (finding.pid == 0 || rank.pid == finding.pid) &&
           (finding.file.empty() || rank.file == finding.file) && rank.devices.size() > 1;
  });
}

std::string process_text(const Report& report, int64_t rank, uint64_t pid, std::string_view file) {
  return process_text(rank, pid, file, is_restarted(report, rank), report.ranks.size() < 2);
}

std::string process_text(int64_t rank, uint64_t pid, std::string_view file, bool is_restarted,
                         bool is_alone) {
  if (rank >= 0) {
    return pid != 0 && is_restarted ? fmt::format("rank {} (pid {})", rank, pid)
                                    : fmt::format("rank {}", rank);
  }
  if (is_alone) return "";
  // Recorders put the pid into the name.
  const bool has_pid = file.find(fmt::format("-{}.", pid)) != std::string_view::npos;
  if (pid == 0 || has_pid) return std::string(file);
  return file.empty() ? fmt::format("pid {}", pid) : fmt::format("pid {} ({})", pid, file);
}

std::string place_text(const Report& report, const Finding& finding) {
  std::string text =
      report.ranks.size() > 1 ? process_text(report, finding.rank, finding.pid, finding.file) : "";
  if (names_device(report, finding)) {
    text += fmt::format("{}cuda:{}", text.empty() ? "" : ", ", finding.device);
  }
  return text;
}

std::string placed_summary(const Report& report, const Finding& finding) {
  const std::string place = place_text(report, finding);
  if (place.empty() || finding.summary.starts_with(place + " ")) return finding.summary;
  return place + ": " + finding.summary;
}

bool is_summarized(const Report& report) {
  return std::any_of(report.ranks.begin(), report.ranks.end(),
                     [](const RankReport& rank) { return !rank.detailed; });
}

std::string also_text(const Report& report, const Finding& finding) {
  std::set<int64_t> others;
  std::set<std::string> files;
  for (const Finding& f : report.findings) {
    const bool same = f.id == finding.id && (f.severity == kInfo) == (finding.severity == kInfo);
    if (same && f.rank >= 0 && f.rank != finding.rank) others.insert(f.rank);
    if (same && !f.file.empty() && f.file != finding.file) files.insert(f.file);
  }
  if (others.empty() && files.empty()) return "";
  if (others.empty()) return fmt::format("also in {}", fmt::join(files, ", "));
  return "also on " + ranks_text({others.begin(), others.end()}) +
         ", with numbers of their own; --rank N describes one";
}

std::string other_ranks_text(const Report& report) {
  size_t count = 0;
  uint64_t least = UINT64_MAX;
  uint64_t most = 0;
  for (const RankReport& rank : report.ranks) {
    if (rank.detailed || rank.devices.empty()) continue;
    ++count;
    uint64_t peak = 0;
    for (const DeviceReport& d : rank.devices) {
      const bool framework = report.comparison.framework || !report.comparison.compared;
      peak = std::max(peak,
                      framework && d.has_framework ? d.allocated_peak.bytes : d.driver_peak.bytes);
    }
    least = std::min(least, peak);
    most = std::max(most, peak);
  }
  if (count == 0) return "";
  return fmt::format("{}: peak of {}; --rank N describes one of them", counted(count, "other rank"),
                     least == most ? size_text(most) : size_text(least) + " to " + size_text(most));
}

std::string events_text(const Report& report) {
  const int64_t before_ns = report.end_ns - report.start_ns - report.events_ns;
  const std::string span = duration_text(report.events_ns);
  const bool late =
      report.events > 1 && before_ns > 0 && span != duration_text(report.end_ns - report.start_ns);
  return fmt::format("{} over {}{}", counted(report.events, "memory event"), span,
                     late ? ", from " + offset_text(before_ns) + " on" : "");
}

std::string no_findings_text(const Report& report) {
  for (const RankReport& rank : report.ranks) {
    for (const DeviceReport& d : rank.devices) {
      if (d.oom_count + d.run.earlier_errors == 0) continue;
      return "Out of memory, as shown below; nothing else was found.";
    }
  }
  const auto all_devices = [&](auto&& is) {
    return std::all_of(report.ranks.begin(), report.ranks.end(), [&](const RankReport& rank) {
      return std::all_of(rank.devices.begin(), rank.devices.end(), is);
    });
  };
  const bool empty = all_devices(
      [](const DeviceReport& d) { return !d.has_framework && d.driver_peak.bytes == 0; });
  const bool states = all_devices([](const DeviceReport& d) { return d.state_only; });
  if (states || (report.events == 0 && empty)) {
    const bool any = !all_devices([](const DeviceReport&) { return false; });
    if (report.damage.any()) return "No memory event could be read: problems cannot be detected.";
    if (states && any) {
      return "Only the state at one moment is known: problems cannot be detected. A history tells "
             "them: tidemark run, or torch.cuda.memory._record_memory_history() before the program "
             "allocates.";
    }
    return "Nothing was recorded: the trace has no memory events.";
  }
  return loss_lines(report).empty() ? "No problems found."
                                    : "No problems found in what was recorded.";
}

std::string totals_text(const MemoryTotals& totals) {
  const std::string pending =
      totals.pending() == 0 ? "" : size_text(totals.pending()) + " pending free, ";
  return fmt::format("{} allocated, {}{} reserved", size_text(totals.allocated), pending,
                     size_text(totals.reserved));
}

std::string oom_text(const OomReport& oom) {
  if (oom.layer == Layer::kDriver) {
    return fmt::format("the driver could not allocate it; this process held {} of the card",
                       size_text(oom.reserved_bytes));
  }
  std::string text = fmt::format(
      "allocated {},{} reserved {}, largest usable hole {}, free on the card {}",
      size_text(oom.allocated_bytes),
      oom.pending_bytes == 0 ? "" : " pending free " + size_text(oom.pending_bytes) + ",",
      size_text(oom.reserved_bytes), size_texts(oom.largest_hole_bytes, oom.requested_bytes).first,
      size_text(oom.device_free_bytes));
  if (oom.refusals != 0) {
    text += fmt::format("; the driver had refused {}", counted(oom.refusals, "request"));
  }
  return text;
}

std::string refusals_text(const LibraryRefusals& refusals) {
  const std::string who = refusals.library == "torch" ? "PyTorch's operators asked its allocator"
                                                      : refusals.library + " asked the driver";
  return fmt::format("{} in vain for {}{}, and the program went on", who,
                     size_text(refusals.largest_bytes),
                     refusals.count == 1 ? "" : fmt::format(" at most, {} times", refusals.count));
}

std::string reading_text(const Ledger& ledger) {
  if (!ledger.reading) return "";
  const int64_t distance = ledger.reading->time_ns - ledger.time_ns;
  const std::string when = distance == 0 ? "at that moment"
                                         : fmt::format("{} {}", duration_text(std::abs(distance)),
                                                       distance < 0 ? "earlier" : "later");
  return fmt::format("what was not recorded is from a reading of the card {}: {} used", when,
                     size_text(ledger.reading->used_bytes));
}

std::string above_readings_text(const DeviceReport& device, const Ledger& ledger) {
  const uint64_t sum = ledger.device_used_bytes;
  const uint64_t highest = device.highest_reading_bytes;
  if (sum <= highest) return "";
  return fmt::format("the card was not read at this very moment: {} more than its highest reading",
                     size_text(sum - highest));
}

bool is_worth_saying(const PinnedMemory& pinned) {
  constexpr uint64_t kMuch = uint64_t{256} << 20;
  return pinned.driver_peak.bytes >= kMuch;
}

std::string pinned_text(const PinnedMemory& pinned, int64_t start_ns) {
  std::string text =
      fmt::format("Pinned host memory: {} at the peak ({})", size_text(pinned.driver_peak.bytes),
                  offset_text(pinned.driver_peak.time_ns - start_ns));
  if (pinned.torch) {
    const uint64_t held = pinned.torch->held_bytes;
    text += fmt::format("; PyTorch's allocator held {}", size_text(held));
    if (const auto in_use = pinned.torch->in_use_bytes) {
      text += fmt::format(", of which {} in use and {} cached", size_text(*in_use),
                          size_text(held - *in_use));
    }
  }
  return text;
}

}  // namespace tidemark
