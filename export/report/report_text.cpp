#include "export/report/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"
#include "export/report/kernel_bursts.h"
#include "export/report/layer_table.h"
#include "export/report/loss_lines.h"
#include "export/report/rank_report.h"
#include "export/report/report_wording.h"
#include "export/styled_text.h"

namespace tidemark {

namespace {

class TextReport : StyledLines {
 public:
  TextReport(const Report& report, const TextOptions& options)
      : StyledLines(options.colour),
        report_(report),
        options_(options),
        summarized_(is_summarized(report)) {}

  std::string run() {
    head();
    sharing();
    bursts();
    std::set<std::string> said;
    for (const Finding& f : report_.findings) {
      if (f.severity == kInfo || (summarized_ && !said.insert(f.id).second)) continue;
      finding(f);
      if (summarized_) also(f, "  ");
    }
    notes();
    if (report_.findings.empty()) {
      line();
      line(no_findings_text(report_));
    }
    losses();
    ranks();
    for (const RankReport& rank : report_.ranks) {
      if (!rank.detailed) continue;
      for (const DeviceReport& d : rank.devices) device(rank, d);
      pinned(rank.pinned);
    }
    if (const std::string others = other_ranks_text(report_); !others.empty()) {
      line();
      line(dim("  " + others));
    }
    no_device();
    return std::move(out_);
  }

 private:
  std::string clipped(std::string_view unsafe, size_t used) const {
    const size_t room = options_.width > used + 20 ? options_.width - used : 20;
    const std::string safe = safe_text(unsafe);
    const std::string_view text = safe;
    if (text_columns(text) <= room) return safe;
    // Of "function path/file:line" the path matters least.
    const size_t space = text.rfind(' ');
    const size_t slash = text.rfind('/');
    if (space != std::string_view::npos && slash != std::string_view::npos && slash > space) {
      const std::string_view file = text.substr(slash + 1);
      const std::string_view function = text.substr(0, space);
      const std::string brief = fmt::format("{} {}", function, file);
      if (text_columns(brief) <= room) return brief;
      // Of the file's name the end, with the line: generated code has long ones.
      constexpr size_t kLeast = 12;
      const size_t taken = text_columns(function) + 4;
      if (text_columns(file) == file.size() && taken + kLeast <= room) {
        return fmt::format("{} ...{}", function, file.substr(file.size() - (room - taken)));
      }
    }
    return shortened(text, room);
  }

  std::string since_start(int64_t time_ns) const { return offset_text(time_ns - report_.start_ns); }

  void head() {
    const std::string_view kind = report_.kind == "torch-snapshot" ? "PyTorch snapshot"
                                  : report_.kind == "job"          ? "job"
                                                                   : "trace";
    line(bold(report_.path));
    line(fmt::format("{}, {}", kind, events_text(report_)));
  }

  void finding(const Finding& f) {
    const bool bad = f.severity == kError;
    line();
    line(bad ? red(f.id) : yellow(f.id));
    wrapped("  ", 2, placed_summary(report_, f), 2);
    line_and_advice(f, 2);
  }

  void also(const Finding& f, const std::string& margin) {
    const std::string others = also_text(report_, f);
    if (!others.empty()) wrapped(dim(margin), margin.size(), others, margin.size());
  }

  void line_and_advice(const Finding& f, size_t indent) {
    const std::string margin(indent, ' ');
    if (!f.frames.empty()) {
      line(dim(margin + "at " + clipped(headline_of(f.frames), indent + 3)));
      const std::vector<std::string> callers = callers_of(f.frames, 3);
      if (!callers.empty()) {
        wrapped(margin + "   called by ", indent + 13, fmt::format("{}", fmt::join(callers, ", ")),
                indent + 13);
      }
    }
    // Several findings may advise the same change: it is printed once.
    std::set<std::string> elsewhere;
    for (const Advice& a : f.advice) {
      const auto [said, is_new] = advised_.try_emplace({f.rank, f.file, a.detail}, f.id);
      if (is_new) {
        wrapped(margin + "-> ", indent + 3, a.detail, indent + 3);
      } else if (elsewhere.insert(said->second).second) {
        line(dim(margin + "-> the advice of " + said->second + " applies here, too"));
      }
    }
  }

  // Findings of severity info; equal ones of several ranks are one note. Those of one place are
  // different ones, however alike their numbers are.
  void notes() {
    std::vector<std::pair<const Finding*, std::string>> notes;
    const auto place = [&](const Finding& f) {
      const std::string device =
          names_device(report_, f) ? fmt::format("cuda:{}", f.device) : std::string();
      const std::string process =
          f.rank < 0 ? process_text(report_, -1, f.pid, f.file) : fmt::format("{}", f.rank);
      return fmt::format("{}{}{}", process, process.empty() || device.empty() ? "" : " ", device);
    };
    std::set<std::string> said;
    for (const Finding& f : report_.findings) {
      if (f.severity != kInfo) continue;
      if (summarized_) {
        if (said.insert(f.id).second) notes.emplace_back(&f, place(f));
        continue;
      }
      const auto same = std::find_if(notes.begin(), notes.end(), [&](const auto& n) {
        return n.first->id == f.id && n.first->summary == f.summary &&
               place(*n.first) != place(f) && headline_of(n.first->frames) == headline_of(f.frames);
      });
      if (same == notes.end()) {
        notes.emplace_back(&f, place(f));
      } else {
        same->second += ", " + place(f);
      }
    }
    if (!notes.empty()) line();
    for (const auto& [finding, ranks] : notes) {
      const std::string_view lead = finding->rank < 0                      ? ""
                                    : ranks.find(',') == std::string::npos ? "rank "
                                                                           : "ranks ";
      const std::string who = ranks.empty() ? "" : fmt::format(" ({}{})", lead, ranks);
      const std::string what = finding->id + who + ": ";
      wrapped(dim("  note ") + what, 7 + text_columns(what), finding->summary, 7);
      line_and_advice(*finding, 7);
      if (summarized_) also(*finding, "       ");
    }
  }

  // Breaks a long text at spaces and indents the following lines. `lead` takes up `columns`.
  void wrapped(const StyledText& lead, size_t columns, std::string_view unsafe, size_t indent) {
    const size_t room = std::max<size_t>(options_.width, 60);
    const std::string safe = safe_text(unsafe);
    std::string_view text = safe;
    StyledText current = lead;
    size_t used = columns;
    while (!text.empty()) {
      const size_t end = std::min(text.find(' '), text.size());
      const std::string_view word = text.substr(0, end);
      if (used + text_columns(word) + 1 > room) {
        line(current);
        current = std::string(indent, ' ');
        used = indent;
      }
      current += word;
      used += text_columns(word) + 1;
      text.remove_prefix(std::min(end + 1, text.size()));
      if (!text.empty()) current += " ";
    }
    line(current);
  }

  // Only worth saying if another tool was there, too.
  void sharing() {
    const bool shared =
        std::any_of(report_.ranks.begin(), report_.ranks.end(),
                    [](const RankReport& rank) { return rank.cupti.starts_with("shared"); });
    if (shared) line(dim("CUPTI was shared with other tools"));
  }

  void bursts() {
    if (const std::string text = bursts_text(report_); !text.empty()) line(dim(text));
  }

  // Launchers and compile workers are processes of the job, too.
  void no_device() {
    const auto count = static_cast<uint64_t>(
        std::count_if(report_.ranks.begin(), report_.ranks.end(),
                      [](const RankReport& rank) { return rank.devices.empty(); }));
    if (count == 0) return;
    line();
    if (count == report_.ranks.size()) {
      return line(has_losses(report_) ? "  nothing of any device could be read"
                                      : "  nothing was recorded on any device");
    }
    line(dim(fmt::format("  {} used no device", counted(count, "other process"))));
  }

  void losses() {
    const std::vector<std::string> lines = loss_lines(report_);
    if (lines.empty()) return;
    line();
    constexpr size_t kMostLines = 20;
    const size_t shown = summarized_ ? std::min(lines.size(), kMostLines) : lines.size();
    for (size_t i = 0; i < shown; ++i) line(yellow("  ! ") + lines[i]);
    if (shown < lines.size()) {
      line(dim(fmt::format("    ... {} more; --json lists them", lines.size() - shown)));
    }
  }

  void ranks() {
    const std::vector<std::string> lines = rank_lines(report_.comparison, report_.start_ns);
    if (lines.empty()) return;
    line();
    line(bold("Ranks"));
    for (const std::string& text : lines) line("  " + text);
  }

  void device(const RankReport& rank, const DeviceReport& d) {
    line();
    std::string title = fmt::format("cuda:{}", d.device);
    if (!d.name.empty()) title += "  " + d.name;
    if (d.total_bytes != 0) title += "  " + size_text(d.total_bytes);
    const std::string process = process_text(report_, rank.rank, rank.pid, rank.file);
    if (!process.empty()) title = fmt::format("{}  {}", process, title);
    line(bold(title));
    ooms(d);
    for (const NamedPeak& p : peaks_of(d)) peak(p, !d.state_only);
    holes(d);
    steps(d.steps);
    whole_run(d);
    phases(d);
    if (d.ledger.device_used_bytes != 0 || !d.has_framework) ledger(d, d.ledger, "");
    if (d.ledger_at_driver_peak) ledger(d, *d.ledger_at_driver_peak, ", the driver's peak");
    if (d.has_framework || !d.stacks.empty() || !d.at_note.empty()) at_instant(d);
  }

  void peak(const NamedPeak& p, bool has_time) {
    has_time = has_time && p.peak.bytes != 0;  // zero is not reached at some instant
    const std::string when = has_time ? fmt::format("at {:<12} ", since_start(p.peak.time_ns)) : "";
    line(styled("  {:<15} {:>11}   {}{}", p.name, size_text(p.peak.bytes), when,
                dim(fmt::format("{} bytes{}", grouped(p.peak.bytes), p.note))));
  }

  // The last error in full, since it ended the program; those before it in a line each.
  void ooms(const DeviceReport& d) {
    constexpr size_t kBefore = 4;
    const size_t shown = std::min(d.ooms.size(), kBefore + 1);
    if (d.run.earlier_errors != 0) line(red("  " + earlier_errors_text(d)));
    if (d.oom_count > shown) {
      line(red("  " + counted(d.oom_count - shown, "earlier failed request")));
    }
    for (size_t i = d.ooms.size() - shown; i + 1 < d.ooms.size(); ++i) {
      line(red(fmt::format("  OUT OF MEMORY at {}", since_start(d.ooms[i].time_ns))) +
           fmt::format(": requested {}", size_text(d.ooms[i].requested_bytes)));
    }
    if (!d.ooms.empty()) oom(d.ooms.back());
    for (const LibraryRefusals& r : d.library_refusals) {
      line(fmt::format("  {} (last at {})", refusals_text(r), since_start(r.last_ns)));
    }
  }

  void oom(const OomReport& o) {
    line(red(fmt::format("  OUT OF MEMORY at {}", since_start(o.time_ns))) +
         styled(": requested {}", bold(size_text(o.requested_bytes))));
    line("    " + oom_text(o));
    stack(o.frames, 4);
  }

  void holes(const DeviceReport& d) {
    const Fragmentation& f = d.fragmentation;
    if (f.holes == 0) return;
    const std::string when =
        d.state_only ? "" : fmt::format("at {:<12} ", holes_time_text(d, report_.start_ns));
    const std::string which =
        d.fragmentation_at.empty() ? "" : fmt::format(" ({})", d.fragmentation_at);
    // empty_cache() would give it back.
    const std::string whole =
        10 * f.releasable_bytes < f.cached_free_bytes
            ? ""
            : fmt::format(", {} in segments without any block", size_text(f.releasable_bytes));
    line(fmt::format("  {:<15} {:>11}   {}in {}, largest {}{}{}", "cached, free",
                     size_text(f.cached_free_bytes), when, counted(f.holes, "hole"),
                     size_text(f.largest_hole_bytes), whole, which));
  }

  void steps(const StepReport& s) {
    if (s.source == StepSource::kNone) return;
    std::string text =
        fmt::format("  {:<15} {:>11}   of {}, detected from {}", "steps", grouped(s.count),
                    duration_text(s.period_ns),
                    s.source == StepSource::kRhythm ? std::string_view("repeated allocations")
                    : s.source == StepSource::kLoop ? std::string_view("the program's loop")
                                                    : step_source_name(s.source));
    if (s.source != StepSource::kMarks)
      text += fmt::format(" ({:.0f} % confidence)", 100 * s.confidence);
    line(text + step_numbers_text(s));
    // Less is a batch that is a little longer than the one before.
    constexpr double kLeast = 1 << 20;  // in the whole run
    if (s.growth_bytes_per_step * static_cast<double>(s.count) < kLeast) return;
    const auto growth = static_cast<uint64_t>(s.growth_bytes_per_step);
    line(fmt::format(
        "  {:<15} {:>11}   per step{}", "growth", size_text(growth),
        s.full_at_step != 0 ? fmt::format(", full at about step {}", grouped(s.full_at_step))
        : s.full_in_steps   ? fmt::format(", full in about {} steps", grouped(*s.full_in_steps))
                            : ""));
  }

  // A recording with a limited window: how it came there.
  void whole_run(const DeviceReport& d) {
    constexpr size_t kLines = 8;
    if (d.run.empty()) return;
    const WholeRun& run = d.run;
    line();
    line("  " + whole_run_text(d, report_));
    // What is not known of the whole run has no column.
    const bool has_steps = run.parts.back().steps != 0;
    const auto columns = [&](std::string_view after, std::string_view lowest,
                             std::string_view highest, std::string_view reserved,
                             std::string_view used, std::string_view steps) {
      std::string text = fmt::format("    {:>12}  {:>11}  {:>11}", after, lowest, highest);
      if (d.has_framework) text += fmt::format("  {:>11}", reserved);
      text += fmt::format("  {:>11}", used);
      return has_steps ? text + fmt::format("  {:>12}", steps) : text;
    };
    line(dim(columns("after", "lowest", "highest", "reserved", "card used", "steps")));
    for (const RunPart& part : thinned(run.parts, kLines)) {
      line(columns(duration_text(part.end_ns - run.begin_ns()), size_text(part.lowest_bytes),
                   size_text(part.highest_bytes), size_text(part.reserved_bytes),
                   part.device_used_bytes == 0 ? "-" : size_text(part.device_used_bytes),
                   grouped(part.steps)));
    }
  }

  // The first step is only shown when the peak fell into it.
  void phases(const DeviceReport& d) {
    for (const PhaseReport& p : d.phases) {
      const bool peaks = d.peak_phase == p.kind;
      if (p.kind == PhaseKind::kFirstStep && !peaks) continue;
      const std::string_view name =
          p.kind == PhaseKind::kForwardOnly ? "forward only" : phase_text(p.kind);
      StyledText text = fmt::format("  {:<15} {:>11}   at {:<12} ", name, size_text(p.peak.bytes),
                                    since_start(p.peak.time_ns));
      if (p.kind != PhaseKind::kFirstStep) {
        text += p.count == 1 ? duration_text(p.total_ns)
                             : fmt::format("highest of {}, {} in total", grouped(p.count),
                                           duration_text(p.total_ns));
        if (peaks) text += "; ";
      }
      line(text + (peaks ? bold("contains the peak") : StyledText("")));
    }
  }

  void ledger(const DeviceReport& d, const Ledger& l, std::string_view what) {
    if (l.lines.empty()) return;
    line();
    const bool summed = l.device_used_bytes != 0;
    line(styled("  Card memory by owner at {}{}{}", since_start(l.time_ns), what,
                summed ? ": " + bold(size_text(l.device_used_bytes)) + " used" : StyledText("")));
    if (summed) line(dim("    " + reading_text(l)));
    if (const std::string why = above_readings_text(d, l); !why.empty()) line(dim("    " + why));
    for (const LedgerLine& item : l.lines) {
      const auto bytes = static_cast<uint64_t>(std::max<int64_t>(0, item.bytes));
      line(fmt::format("    {:>10}  {:>7}  {}", size_text(bytes),
                       summed ? percent_text(bytes, l.device_used_bytes) : "", item.owner));
    }
    if (l.not_resident_bytes != 0) {
      line(fmt::format("    {:>10}  {:>7}  {}: unmapped, not on the card",
                       size_text(l.not_resident_bytes), "", kNotResident));
    }
    if (summed && l.lines.back().bytes > int64_t{64} << 20) {
      line(dim(
          "    unexplained: the driver's rounding, local memory of kernels, lazily loaded code,"));
      line(dim("    or memory allocated before the recording began"));
    }
    if (l.shared_card && summed) {
      line(yellow("    ! shared card: the share of other processes is not known"));
    }
  }

  void pinned(const PinnedMemory& p) {
    constexpr size_t kLines = 3;
    if (!is_worth_saying(p)) return;
    line();
    line("  " + pinned_text(p, report_.start_ns));
    for (size_t i = 0; i < std::min(p.stacks.size(), kLines); ++i) {
      line(fmt::format("    {:>10}  {}", size_text(p.stacks[i].bytes),
                       clipped(headline_of(p.stacks[i].frames), 16)));
    }
  }

  void at_instant(const DeviceReport& d) {
    line();
    if (d.has_framework) {
      line(styled("  Live {}: {}", instant_text(d, report_.start_ns),
                  bold(totals_text(d.at_totals))));
    } else {
      line(styled("  Allocated from the driver and live at {}: {}", since_start(d.at_ns),
                  bold(size_text(d.at_totals.allocated))));
    }
    if (!d.at_note.empty()) wrapped(yellow("    ! "), 6, d.at_note, 6);
    const bool categories_known =
        std::any_of(d.categories.begin(), d.categories.end(),
                    [](const CategoryShare& c) { return c.category != Category::kUnknown; });
    if (categories_known) {
      for (const CategoryShare& c : d.categories) {
        line(fmt::format("    {:>10}  {:>7}  {}", size_text(c.bytes),
                         percent_text(c.bytes, d.at_totals.allocated), category_text(c)));
      }
      line();
    }
    labels(d);
    modules(d);
    const size_t shown = std::min(options_.stacks, d.stacks.size());
    for (size_t i = 0; i < shown; ++i) share(d, i, shown);
    if (shown < d.stacks.size()) {
      line(dim("    ... smaller stacks left out; --stacks N or --json shows more"));
    }
  }

  void labels(const DeviceReport& d) {
    const uint64_t whole = d.has_framework ? d.at_totals.allocated : d.driver_peak.bytes;
    for (const LabelShare& l : d.labels) {
      line(fmt::format("    {:>10}  {:>7}  named \"{}\", {}", size_text(l.bytes),
                       percent_text(l.bytes, whole), clipped(l.label, 50),
                       counted(l.count, "block")));
    }
    if (!d.labels.empty()) line();
  }

  // Layers: the nn.Modules of the program.
  void modules(const DeviceReport& d) {
    const std::vector<std::string> lines = layer_lines(d, options_.width);
    for (size_t i = 0; i < lines.size(); ++i) i == 0 ? line(dim(lines[i])) : line(lines[i]);
    if (!lines.empty()) line();
  }

  static std::string category_text(const CategoryShare& c) {
    return fmt::format("{}{}", category_name(c.category), c.doubt());
  }

  void share(const DeviceReport& d, size_t index, size_t shown) {
    const StackShare& s = d.stacks[index];
    line(fmt::format("    {:>10}  {:>7}  {:<12} {}", size_text(s.bytes),
                     percent_text(s.bytes, d.at_totals.allocated), counted(s.count, "block"),
                     clipped(headline(d, s), 37)));
    std::string more;
    const auto add = [&](std::string_view text) {
      more.append(more.empty() ? "" : ", ").append(text);
    };
    if (s.category != Category::kUnknown) {
      add(fmt::format("{}{}", s.category_bytes < s.bytes ? "mostly " : "",
                      category_name(s.category)));
    }
    const bool unknown = s.frames.empty() && (d.state_only || !s.before_history);
    if (unknown && 2 * s.bytes > d.at_totals.allocated) sizes(d);
    const std::string inner = inner_line_of(s.frames);
    if (inner != headline(d, s) && !inner.empty()) add("in " + inner);
    if (!more.empty()) line(dim(fmt::format("{:>38}{}", "", clipped(more, 38))));
    for (size_t other = 0; other < shown; ++other) {
      const StackShare& o = d.stacks[other];
      if (other == index || headline(d, s) != headline(d, o) || inner != inner_line_of(o.frames)) {
        continue;
      }
      const std::string caller = caller_unlike(s.frames, o.frames);
      if (!caller.empty())
        line(dim(fmt::format("{:>38}{}", "", clipped("called by " + caller, 38))));
      break;
    }
  }

  // Of blocks without a stack, little else is known.
  void sizes(const DeviceReport& d) {
    constexpr size_t kShown = 4;
    std::vector<SizeShare> shares = d.sizes;
    std::sort(shares.begin(), shares.end(),
              [](const SizeShare& a, const SizeShare& b) { return a.bytes > b.bytes; });
    shares.resize(std::min(shares.size(), kShown));
    for (const SizeShare& s : shares) {
      line(dim(fmt::format("{:>38}{} in {} of {} on average", "", size_text(s.bytes),
                           counted(s.count, "block"), size_text(s.bytes / s.count))));
    }
  }

  static std::string headline(const DeviceReport& d, const StackShare& s) {
    if (s.before_history && !d.state_only) return std::string(kBeforeRecording);
    if (!s.frames.empty()) return headline_of(s.frames);
    const bool backward = d.backward_without_stack && !d.state_only;
    return backward ? "(no Python stack: backward pass or another C++ thread)"
                    : "(no stack recorded)";
  }

  void stack(const std::vector<std::string>& frames, size_t indent) {
    constexpr size_t kLines = 8;
    const std::vector<std::string> lines = lines_to_show(frames);
    for (size_t i = 0; i < std::min(kLines, lines.size()); ++i) {
      line(dim(fmt::format("{:>{}}{}", "", indent, clipped(lines[i], indent))));
    }
    if (lines.size() > kLines) {
      line(dim(fmt::format("{:>{}}... {} more", "", indent, lines.size() - kLines)));
    }
  }

  const Report& report_;
  const TextOptions& options_;
  bool summarized_;
  // Rank and detail -> the finding that it was printed for.
  std::map<std::tuple<int64_t, std::string, std::string>, std::string> advised_;
};

}  // namespace

std::string report_as_text(const Report& report, const TextOptions& options) {
  return TextReport(report, options).run();
}

}  // namespace tidemark
