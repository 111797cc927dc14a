#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>

#include "analysis/insight/unowned_weights.h"
#include "analysis/whatif/whatif.h"
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
  std::string card;
  std::string max_peak;
  std::vector<std::string> max_modules;
  std::string baseline;
  double max_growth = 5;
  std::vector<std::string> fail_on;
  bool allow_oom = false;
  bool allow_losses = false;
};

// "rank 1 cuda:0"
std::string device_text(const Report& report, const RankReport& rank, const DeviceReport& d) {
  const std::string process = process_text(report, rank.rank, rank.pid, rank.file);
  return fmt::format("{}{}cuda:{}", process, process.empty() ? "" : " ", d.device);
}

// Reserved peaks are PyTorch's; driver peaks are of what the driver allocated for the process.
enum class Quantity : uint8_t { kReserved, kReservedOrDriver };

// The most memory that a device needed: what PyTorch reserved or, if that is more, the driver peak.
struct HighestPeak {
  uint64_t bytes = 0;
  std::string name;  // "reserved peak of rank 1 cuda:0"
  // With what is older than the recording, as far as the driver's peak lacks it, on the device for
  // which that is most. UINT64_MAX: nobody knows.
  uint64_t at_most = 0;
  uint64_t older_bytes = 0;  // of that device
  std::string older_on;
};

HighestPeak highest_peak(const Report& report, Quantity quantity) {
  const bool only_reserved = quantity == Quantity::kReserved;
  HighestPeak highest;
  for (const RankReport& rank : report.ranks) {
    for (const DeviceReport& d : rank.devices) {
      const uint64_t driver = d.run_driver_peak().bytes + d.pool_cache_bytes;
      const uint64_t of_torch = d.run_reserved_peak().bytes;
      const bool reserved = only_reserved || of_torch >= driver;
      const uint64_t bytes = reserved ? of_torch : driver;
      const uint64_t at_most = only_reserved ? bytes
                               : d.before_recording_bytes
                                   ? std::max(bytes, driver + *d.before_recording_bytes)
                                   : UINT64_MAX;
      if (at_most > highest.at_most) {
        highest.at_most = at_most;
        highest.older_bytes = d.before_recording_bytes.value_or(0);
        highest.older_on = device_text(report, rank, d);
      }
      if (bytes <= highest.bytes) continue;
      highest.bytes = bytes;
      const uint64_t kept =
          reserved ? d.reserved_peak.bytes : d.driver_peak.bytes + d.pool_cache_bytes;
      highest.name =
          fmt::format("{} of {}{}", reserved ? "reserved peak" : "driver peak",
                      device_text(report, rank, d), bytes > kept ? " before the kept window" : "");
    }
  }
  return highest;
}

// Whether the driver's calls were recorded wherever PyTorch reserved memory. A snapshot has none.
bool has_driver_peaks(const Report& report) {
  for (const RankReport& rank : report.ranks) {
    for (const DeviceReport& d : rank.devices) {
      if (d.run_reserved_peak().bytes != 0 && d.run_driver_peak().bytes == 0) return false;
    }
  }
  return true;
}

// Devices on which the report shows an error. Refusals that PyTorch's allocator or a library
// handled by itself are none.
std::vector<std::string> out_of_memory(const Report& report) {
  std::vector<std::string> devices;
  for (const RankReport& rank : report.ranks) {
    for (const DeviceReport& d : rank.devices) {
      if (d.ooms.empty() && d.run.earlier_errors == 0) continue;
      devices.push_back(device_text(report, rank, d) +
                        (d.ooms.empty() ? " before the kept window" : ""));
    }
  }
  return devices;
}

// Findings about the failed request itself; others only say what led to it.
bool tells_of_oom(const Finding& f) {
  constexpr std::array<std::string_view, 4> kIds = {"capacity", "fragmentation", "memory_fraction",
                                                    "optimizer_state_spike"};
  return std::find(kIds.begin(), kIds.end(), f.id) != kIds.end();
}

// The evidence of a finding by its name; 0: it has none of that name.
uint64_t evidence_of(const Finding& f, std::string_view name) {
  for (const auto& [key, value] : f.evidence) {
    if (key == name) return value;
  }
  return 0;
}

// Whether a run that was judged on another card cannot run there: what it allocates, or holds
// outside PyTorch, is too much. One that only reserves more may still run.
bool does_not_fit(const Finding& f) {
  if (f.id != "capacity" || f.severity != kWarning) return false;
  const uint64_t card = evidence_of(f, "card_bytes");
  return card != 0 ? evidence_of(f, "outside_bytes") > card
                   : evidence_of(f, "allocated_bytes") > evidence_of(f, "limit_bytes");
}

Result<LoadedTrace> load_one_job(const std::string& path) {
  Result<LoadedTrace> trace = load_with_progress(path);
  if (!trace) return trace;
  const std::vector<std::string>& jobs = trace->source.jobs;
  if (!jobs.empty()) {
    return Error{fmt::format("{}: has the traces of several jobs ({}): check each by itself", path,
                             fmt::join(jobs, ", "))};
  }
  return trace;
}

Result<Report> report_on(const std::string& path) {
  const Result<LoadedTrace> trace = load_one_job(path);
  if (!trace) return trace.error();
  return make_report(trace->model, {});
}

// The recorded requests within what another card has; nothing if they cannot be replayed.
std::optional<Prediction> replay_on_card(const TraceModel& model, const Finding& f,
                                         uint64_t card_bytes) {
  for (const ProcessModel& process : model.processes) {
    if (!f.concerns(process.info.rank, process.info.pid, process.file)) continue;
    WhatIfOptions options;
    options.card_bytes = card_bytes;
    const Result<WhatIf> whatif = WhatIf::prepare(process, f.device, options);
    if (whatif) return whatif->predict(whatif->own_settings());
  }
  return std::nullopt;
}

// The lines to print, and whether all of them are good.
class Verdict {
 public:
  void add(bool good, const std::string& text) {
    lines_.push_back(fmt::format("{} {}", good ? "ok    " : "FAILED", text));
    good_ &= good;
  }
  // What does not fail, and should not be missed.
  void warn(const std::string& text) { lines_.push_back("warning " + text); }
  // What the answer depends on is not known.
  void doubt(const std::string& why) { doubt_ = why; }
  bool good() const { return good_; }
  const std::string& why_in_doubt() const { return doubt_; }
  void print() const {
    for (const std::string& line : lines_) print_line(line);
  }

 private:
  std::vector<std::string> lines_;
  std::string doubt_;
  bool good_ = true;
};

// With the outermost modules that the recording has: most wrong names are wrong from the start.
Error unknown_module(const Report& report, const std::string& name) {
  constexpr size_t kNamed = 8;
  std::set<std::string> outermost;
  for (const RankReport& rank : report.ranks) {
    for (const DeviceReport& d : rank.devices) {
      for (const ModuleShare& m : d.modules) {
        if (!m.module.empty()) outermost.insert(m.module.substr(0, m.module.find('.')));
      }
    }
  }
  if (outermost.empty()) {
    return {fmt::format(
        "{}: no nn.Modules were recorded, so --max-module cannot be checked (snapshots have none)",
        report.path)};
  }
  std::vector<std::string> named(outermost.begin(), outermost.end());
  if (named.size() > kNamed) {
    named.resize(kNamed);
    named.emplace_back("...");
  }
  return {fmt::format("{}: no nn.Module '{}' holds memory at the peak; there are: {}", report.path,
                      name, fmt::join(named, ", "))};
}

// The most that an nn.Module and those below it hold at the peak of a device.
Status check_module(const std::string& limit, const Report& report, Verdict& verdict) {
  const size_t equals = limit.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    return Error{fmt::format("--max-module '{}' is not like layers.3.mlp=2GiB", limit)};
  }
  const std::string name = limit.substr(0, equals);
  const Result<uint64_t> most = parse_memory("--max-module", limit.substr(equals + 1));
  if (!most) return most.error();
  uint64_t highest = 0;
  std::string where;
  bool known = false;
  uint64_t at_most = 0;  // with the weights whose module is not known
  uint64_t unknown = 0;  // of that device
  for (const RankReport& rank : report.ranks) {
    for (const DeviceReport& d : rank.devices) {
      uint64_t bytes = 0;
      for (const ModuleShare& m : d.modules) {
        if (m.module != name && !m.module.starts_with(name + ".")) continue;
        known = true;
        bytes += m.bytes;
      }
      const uint64_t nobodys = unowned_weights(d.modules);
      if (bytes + nobodys > at_most) {
        at_most = bytes + nobodys;
        unknown = nobodys;
      }
      if (bytes <= highest) continue;
      highest = bytes;
      where = device_text(report, rank, d);
    }
  }
  if (!known) return unknown_module(report, name);
  const auto [held, allowed] = size_texts(highest, *most);
  verdict.add(highest <= *most,
              fmt::format("module {} on {} {} at the peak, limit {}", name, where, held, allowed));
  if (at_most > *most) {
    verdict.doubt(fmt::format(
        "{}: {} of weights were made or loaded on the device, and which nn.Module has them is not "
        "recorded: {} may hold up to {}; --allow-losses checks the rest",
        report.path, size_text(unknown), name, size_text(at_most)));
  }
  return {};
}

std::string unknown_peak(const std::string& path, const HighestPeak& peak) {
  const std::string older = peak.at_most == UINT64_MAX
                                ? "what it held before"
                                : fmt::format("up to {} that it held on {} before",
                                              size_text(peak.older_bytes), peak.older_on);
  return fmt::format(
      "{}: was recorded from a running process: {} {} not part of its peak; "
      "--allow-losses checks the rest",
      path, older, peak.at_most == UINT64_MAX ? "is" : "are");
}

// Why the run may have needed more than the report knows; nothing if it cannot.
Status check_complete(const Report& report, const Options& options) {
  if (options.allow_losses) return {};
  if (has_losses(report)) {
    return Error{report.path +
                 ": a part of the recording is lost, and with it perhaps a higher peak; "
                 "--allow-losses checks the rest"};
  }
  if (report.damage.unfinished) {
    return Error{report.path +
                 ": the recording is still going on or was cut off, so a higher peak may follow; "
                 "--allow-losses checks what is there"};
  }
  for (const RankReport& rank : report.ranks) {
    for (const DeviceReport& d : rank.devices) {
      if (!d.state_only) continue;
      const std::string file =
          rank.file.empty() ? report.path : fmt::format("{}: {}", report.path, rank.file);
      return Error{file +
                   ": has no history, so its peak is not known; --allow-losses checks the state "
                   "when the snapshot was taken"};
    }
  }
  return {};
}

// Whether the peak is within its limit over the baseline, by the quantity that both have.
Status check_growth(const Options& options, const Report& report, Verdict& verdict) {
  const Result<Report> baseline = report_on(options.baseline);
  if (!baseline) return baseline.error();
  warn_of_losses(*baseline);
  if (Status complete = check_complete(*baseline, options); !complete) return complete.error();
  if (const std::vector<std::string> ran_out = out_of_memory(*baseline); !ran_out.empty()) {
    warn(fmt::format(
        "{}: the baseline ran out of memory on {}: its peak is what fitted, not what it "
        "needed",
        options.baseline, fmt::join(ran_out, ", ")));
  }
  const bool both_driver = has_driver_peaks(report) && has_driver_peaks(*baseline);
  const Quantity quantity = both_driver ? Quantity::kReservedOrDriver : Quantity::kReserved;
  const HighestPeak peak = highest_peak(report, quantity);
  const HighestPeak before = highest_peak(*baseline, quantity);
  if (highest_peak(*baseline, Quantity::kReservedOrDriver).bytes == 0) {
    return Error{options.baseline + ": has no peak to compare with"};
  }
  if (peak.bytes == 0 || before.bytes == 0) {
    const std::string& driver = peak.bytes == 0 ? options.path : options.baseline;
    const std::string& torch = peak.bytes == 0 ? options.baseline : options.path;
    return Error{
        fmt::format("{} has a driver peak only, and {} only the reserved peak of PyTorch: "
                    "they cannot be compared",
                    driver, torch)};
  }
  const auto growth_of = [](uint64_t after, uint64_t from) {
    return 100 * (static_cast<double>(after) / static_cast<double>(from) - 1);
  };
  const double growth = growth_of(peak.bytes, before.bytes);
  const bool good = growth <= options.max_growth;
  if (good && growth_of(peak.at_most, before.bytes) > options.max_growth) {
    verdict.doubt(unknown_peak(options.path, peak));
  }
  if (!good && growth_of(peak.bytes, before.at_most) <= options.max_growth &&
      !options.allow_losses) {
    verdict.doubt(unknown_peak(options.baseline, before));
    return {};
  }
  const auto [now, then] = size_texts(peak.bytes, before.bytes);
  // As many digits as it takes to see that one exceeds the other.
  int digits = 1;
  const double apart = std::abs(growth - options.max_growth);
  while (digits < 6 && apart != 0 && apart * std::pow(10, digits) < 1) ++digits;
  const auto text = [&](double percent) { return fmt::format("{:+.{}f} %", percent, digits); };
  verdict.add(good, fmt::format("{} {}, baseline {} {}: {}, limit {}", peak.name, now, before.name,
                                then, text(growth), text(options.max_growth)));
  return {};
}

// Says which findings do not fail, so that nobody takes them for absent. Out of memory is not one
// of them: it is allowed, or fails.
void warn_of_passed_over(const Report& report, bool only_errors, Verdict& verdict) {
  std::vector<std::string> ids;
  for (const Finding& f : report.findings) {
    const bool is_known = std::find(ids.begin(), ids.end(), f.id) != ids.end();
    const bool allowed = f.severity == kError && tells_of_oom(f);
    const bool counts = f.severity == kError || (f.severity == kWarning && !only_errors);
    if (counts && !is_known && !allowed) ids.push_back(f.id);
  }
  if (ids.empty()) return;
  verdict.warn(fmt::format("passed over: {}; --fail-on {} makes the check fail",
                           fmt::join(ids, ", "), fmt::join(ids, ",")));
}

// Findings that were to fail, but are only notes.
std::string only_noted(const Report& report, const std::vector<std::string>& fail_on) {
  std::set<std::string> ids;
  for (const Finding& f : report.findings) {
    const bool named = std::find(fail_on.begin(), fail_on.end(), f.id) != fail_on.end();
    if (named && f.severity == kInfo) ids.insert(f.id);
  }
  return ids.empty() ? "" : fmt::format("; only noted: {}", fmt::join(ids, ", "));
}

std::string finding_text(const Report& report, const Finding& f) {
  const std::string text = placed_summary(report, f);
  return fmt::format("{}{}{}", f.id, text != f.summary ? " on " : ": ", text);
}

// Whether the run would have fitted another card. One that ran out of memory tells only what fitted
// its own.
void check_card(const Options& options, const TraceModel& model, const Report& report,
                uint64_t card_bytes, Verdict& verdict) {
  bool fits = out_of_memory(report).empty();
  for (const Finding& f : report.findings) {
    if (f.id != "capacity" || f.severity == kInfo) continue;
    fits = false;
    const bool fails_already =
        std::any_of(options.fail_on.begin(), options.fail_on.end(),
                    [](const std::string& id) { return id == "any" || id == "capacity"; });
    if (fails_already) continue;
    if (does_not_fit(f)) {
      verdict.add(false, finding_text(report, f));
      continue;
    }
    // What is only reserved may be given back in time, or too late.
    const std::optional<Prediction> replay =
        f.severity == kWarning ? replay_on_card(model, f, card_bytes) : std::nullopt;
    if (!replay) continue;
    if (replay->out_of_memory) {
      verdict.add(false, fmt::format("{}; in a replay of its requests, {} did not fit",
                                     finding_text(report, f), size_text(replay->failed_bytes)));
    } else {
      verdict.add(true, fmt::format("runs on a card of {} in a replay of its requests, where the "
                                    "cache is emptied {}",
                                    size_text(card_bytes), counted(replay->emptied, "time")));
    }
  }
  if (fits) verdict.add(true, fmt::format("fits a card of {}", size_text(card_bytes)));
}

int run(const Options& options) {
  std::optional<uint64_t> max_peak;
  if (!options.max_peak.empty()) {
    const Result<uint64_t> size = parse_memory("--max-peak", options.max_peak);
    if (!size) return fail(size.error());
    max_peak = *size;
  }
  if (!std::isfinite(options.max_growth)) return fail({"--max-growth is not a number of percent"});
  if (Status known = check_finding_ids(options.fail_on); !known) return fail(known.error());
  uint64_t card_bytes = 0;
  if (!options.card.empty()) {
    const Result<uint64_t> card = parse_card(options.card);
    if (!card) return fail(card.error());
    card_bytes = *card;
  }
  const Result<LoadedTrace> trace = load_one_job(options.path);
  if (!trace) return fail(trace.error());
  ReportOptions wanted;
  wanted.card_bytes = card_bytes;
  const Result<Report> report = make_report(trace->model, wanted);
  if (!report) return fail(report.error());
  warn_of_losses(*report);
  const HighestPeak peak = highest_peak(*report, Quantity::kReservedOrDriver);
  const std::vector<std::string> ran_out = out_of_memory(*report);
  if (peak.bytes == 0 && (ran_out.empty() || options.allow_oom)) {
    return fail({fmt::format("{}: no memory use {}, so there is nothing to check", options.path,
                             has_losses(*report) ? "could be read" : "was recorded")});
  }
  Verdict verdict;
  if (!ran_out.empty() && !options.allow_oom) {
    verdict.add(false, fmt::format("out of memory on {}", fmt::join(ran_out, ", ")));
  }
  if (max_peak) {
    const auto [needed, limit] = size_texts(peak.bytes, *max_peak);
    verdict.add(peak.bytes <= *max_peak, fmt::format("{} {}, limit {}", peak.name, needed, limit));
    if (peak.at_most > *max_peak) verdict.doubt(unknown_peak(options.path, peak));
  }
  for (const std::string& limit : options.max_modules) {
    if (Status good = check_module(limit, *report, verdict); !good) return fail(good.error());
  }
  if (!options.baseline.empty()) {
    if (Status read = check_growth(options, *report, verdict); !read) return fail(read.error());
  }
  const bool only_findings = !max_peak && options.max_modules.empty() && options.baseline.empty();
  for (const Finding& f : failing_findings(*report, options.fail_on, only_findings)) {
    if (options.allow_oom && options.fail_on.empty() && tells_of_oom(f)) continue;
    verdict.add(false, finding_text(*report, f));
  }
  if (card_bytes != 0) check_card(options, trace->model, *report, card_bytes, verdict);
  if (verdict.good()) {
    if (Status complete = check_complete(*report, options); !complete) {
      return fail(complete.error());
    }
    if (!verdict.why_in_doubt().empty() && !options.allow_losses) {
      return fail({verdict.why_in_doubt()});
    }
    if (std::any_of(report->ranks.begin(), report->ranks.end(),
                    [](const RankReport& rank) { return rank.loss.killed; })) {
      warn(fmt::format("{}: the run was cut off: what it would have needed later is not checked",
                       options.path));
    }
    const bool has_judged = only_findings || !options.fail_on.empty();
    if (has_judged) {
      verdict.add(true, "no failing findings" + only_noted(*report, options.fail_on));
    }
    warn_of_passed_over(*report, !has_judged && card_bytes == 0, verdict);
  }
  verdict.print();
  return verdict.good() ? kOk : kNo;
}

}  // namespace

void add_check(CLI::App& app, int& code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("check", "for CI: exit 1 when a run needs too much memory");
  command->add_option("PATH", options->path, "a trace, a directory of traces, or a snapshot")
      ->required();
  command->add_option("--max-peak", options->max_peak,
                      "limit for the highest peak of a device (40GiB; 40GB is 40*10^9 bytes): the "
                      "reserved peak or, if it is higher, the driver peak");
  command->add_option(
      "--max-module", options->max_modules,
      "limit for what an nn.Module and those in it hold at the peak: NAME=SIZE; may "
      "be repeated");
  command->add_option("--card", options->card,
                      "judge the run as if on a card of this size (24GiB), and fail if what it "
                      "allocates does not fit, or a replay of its requests runs out of memory");
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
                    "running out of memory does not fail the check; what --fail-on names and, "
                    "without limits, other errors (creep) still do");
  command->add_flag("--allow-losses", options->allow_losses,
                    "check what remains of a damaged or incomplete recording");
  command->footer(
      "A run that ran out of memory fails the check. Without options, all findings of severity\n"
      "error do. Exit status 2: nothing was measured, the input could not be read, or the check\n"
      "would pass, but a part of the recording is lost, or memory from before it may exceed the\n"
      "limit.\n"
      "Examples:\n"
      "  tidemark check run.tmk --max-peak 40GiB\n"
      "  tidemark check run.tmk --card 24GiB\n"
      "  tidemark check run.tmk --max-module layers.0=2GiB\n"
      "  tidemark check run.tmk --baseline main.tmk --max-growth 3\n"
      "  tidemark check run.tmk --fail-on creep,retained_graph,fragmentation");
  command->callback([options, &code] { code = run(*options); });
}

}  // namespace tidemark::cli
