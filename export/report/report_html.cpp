#include "export/report/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"
#include "export/report/html_writer.h"
#include "export/report/kernel_bursts.h"
#include "export/report/layer_table.h"
#include "export/report/loss_lines.h"
#include "export/report/rank_report.h"
#include "export/report/report_wording.h"

namespace tidemark {

namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ink: #1c2733; --dim: #66727f; --paper: #ffffff; --line: #d9e0e7;
  --allocated: #1f77b4; --reserved: #9ec5e3; --error: #b3261e; --warning: #a15c00; --info: #3b6ea5; }
@media (prefers-color-scheme: dark) { :root { --ink: #dde5ee; --dim: #93a1b0; --paper: #14191f;
  --line: #2f3a46; --allocated: #58a6e0; --reserved: #2c5573; --error: #ff8a80; --warning: #ffb74d;
  --info: #8ab8e8; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
table { border-collapse: collapse; margin: .6rem 0 1.2rem; }
td, th { padding: .15rem .9rem .15rem 0; text-align: left; vertical-align: top; }
th { color: var(--dim); font-weight: normal; } tr + tr td { border-top: 1px solid var(--line); }
td:nth-child(1), td:nth-child(2) { white-space: nowrap; font-variant-numeric: tabular-nums; }
code, .frame { font: 13px/1.45 ui-monospace, monospace; overflow-wrap: anywhere; }
.finding { border-left: 4px solid var(--info); padding: .2rem 0 .2rem 1rem; margin: 1rem 0; }
.finding.error { border-color: var(--error); } .finding.warning { border-color: var(--warning); }
.finding b { display: block; } .finding p { margin: .3rem 0; } .dim { color: var(--dim); }
.layers { font-variant-numeric: tabular-nums; font-size: 13px; overflow-x: auto; }
.layers details { margin-left: 0; } .layers div, .layers summary { display: grid;
  grid-template-columns: minmax(16rem, 1fr) repeat(8, 5.2rem); border-bottom: 1px solid var(--line); }
.layers span { text-align: right; white-space: nowrap; }
.layers span:first-child { text-align: left; white-space: pre; overflow: hidden; text-overflow: ellipsis; }
.layers summary span:first-child::before { content: "\25b8\00a0"; }
.layers details[open] > summary span:first-child::before { content: "\25be\00a0"; }
.layers div span:first-child::before { content: "\00a0\00a0"; }
details { margin-left: 1rem; } svg { width: 100%; height: auto; }
svg text { fill: var(--dim); font-size: 12px; } .grid { stroke: var(--line); }
.allocated { fill: var(--allocated); } .reserved { fill: var(--reserved); }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .35em 0 .8em; }
.limit { stroke: var(--error); stroke-dasharray: 6 4; } .mark { stroke: var(--error); }
)";

constexpr int kWidth = 1000;
constexpr int kHeight = 260;
constexpr int kLeft = 80;
constexpr int kBottom = 24;

// "optimizer_state" as people write it.
std::string in_words(std::string_view id) {
  std::string words(id);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

// As in the viewer.
std::string_view category_paint(Category category) {
  switch (category) {
    case Category::kParameter:
      return "#0072b2";
    case Category::kGradient:
      return "#d55e00";
    case Category::kOptimizerState:
      return "#cc79a7";
    case Category::kActivation:
      return "#009e73";
    case Category::kInput:
      return "#f0e442";
    case Category::kTemporary:
      return "#56b4e9";
    case Category::kCommunication:
      return "#e69f00";
    case Category::kAutogradDetail:
      return "#66c5ab";
    case Category::kKvCache:
      return "#e69e66";
    case Category::kWorkspace:
      return "#8a5f00";
    case Category::kUnknown:
      break;
  }
  return "#8c9198";
}

class Page {
 public:
  Page(const Report& report, std::span<const CategoryCurve> categories)
      : report_(report), categories_(categories) {}

  std::string run() {
    html_.raw("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    html_.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html_.element("title", "tidemark: " + report_.path);
    html_.raw("<style>");
    html_.raw(kStyle);
    html_.raw("</style></head><body>\n");
    html_.element("h1", report_.path);
    html_.element("p", fmt::format("{}, {}", report_.kind, events_text(report_)), "dim");
    if (const std::string bursts = bursts_text(report_); !bursts.empty()) {
      html_.element("p", bursts, "dim");
    }
    const bool summarized = is_summarized(report_);
    std::set<std::string> said;
    for (const Finding& f : report_.findings) {
      if (summarized && !said.insert(f.id).second) continue;
      finding(f);
      if (summarized) html_.element("p", also_text(report_, f), "dim");
    }
    const std::vector<std::string> losses = loss_lines(report_);
    if (report_.findings.empty()) html_.element("p", no_findings_text(report_));
    list("Losses", losses);
    list("Ranks", rank_lines(report_.comparison, report_.start_ns));
    for (const RankReport& rank : report_.ranks) {
      if (!rank.detailed) continue;
      for (const DeviceReport& d : rank.devices) device(rank, d);
      if (is_worth_saying(rank.pinned)) {
        html_.element("p", pinned_text(rank.pinned, report_.start_ns));
      }
    }
    if (summarized) html_.element("p", other_ranks_text(report_), "dim");
    html_.raw("</body></html>\n");
    return std::move(html_).take();
  }

 private:
  std::string since_start(int64_t time_ns) const { return offset_text(time_ns - report_.start_ns); }

  void frames(const std::vector<std::string>& frames) {
    if (frames.empty()) return;
    html_.raw("<details><summary class=\"frame\">");
    html_.text(headline_of(frames));
    html_.raw("</summary>");
    for (const std::string& frame : frames) html_.element("div", frame, "frame dim");
    html_.raw("</details>");
  }

  void finding(const Finding& f) {
    html_.raw(fmt::format("<div class=\"finding {}\">", f.severity));
    const std::string where = place_text(report_, f);
    html_.element("span", where.empty() ? f.id : fmt::format("{} on {}", f.id, where), "dim");
    html_.element("b", f.summary);
    frames(f.frames);
    for (const Advice& a : f.advice) html_.element("p", a.detail);
    html_.raw("</div>\n");
  }

  void list(std::string_view title, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    html_.element("h2", title);
    for (const std::string& text : lines) html_.element("div", text);
    html_.raw("\n");
  }

  void device(const RankReport& rank, const DeviceReport& d) {
    std::string title = fmt::format("cuda:{} {}", d.device, d.name);
    const std::string process = process_text(report_, rank.rank, rank.pid, rank.file);
    if (!process.empty()) title = fmt::format("{}: {}", process, title);
    html_.element("h2", title);
    if (!d.state_only) {
      curve(d);
      categories(rank, d);
    }
    html_.table("size", "highest value", "when");
    for (const NamedPeak& p : peaks_of(d)) {
      peak(fmt::format("{}{}", p.name, p.note), p.peak, !d.state_only);
    }
    for (const PhaseReport& p : d.phases) {
      peak(fmt::format("{} (allocated{})", phase_text(p.kind),
                       d.peak_phase == p.kind ? ", contains the peak" : ""),
           p.peak);
    }
    html_.raw("</table>\n");
    if (d.oom_count > d.ooms.size()) {
      html_.element("p", counted(d.oom_count - d.ooms.size(), "earlier failed request"));
    }
    if (d.run.earlier_errors != 0) html_.element("p", earlier_errors_text(d));
    for (const OomReport& o : d.ooms) oom(o);
    for (const LibraryRefusals& r : d.library_refusals) {
      html_.element("p", fmt::format("{} (last at {})", refusals_text(r), since_start(r.last_ns)));
    }
    ledger(d, d.ledger, "");
    if (d.ledger_at_driver_peak) ledger(d, *d.ledger_at_driver_peak, ", the driver's peak");
    shares(d);
    layers(d);
    tree(d);
    holes(d);
    growth(d.steps);
    whole_run(d);
  }

  // A recording with a limited window.
  void whole_run(const DeviceReport& d) {
    constexpr size_t kLines = 16;
    if (d.run.empty()) return;
    html_.element("h3", whole_run_text(d, report_));
    html_.raw("<table>\n");
    for (const RunPart& part : thinned(d.run.parts, kLines)) {
      html_.row("up to " + duration_text(part.end_ns - d.run.begin_ns()),
                fmt::format("{} to {} allocated", size_text(part.lowest_bytes),
                            size_text(part.highest_bytes)),
                d.has_framework ? size_text(part.reserved_bytes) + " reserved" : "",
                part.device_used_bytes == 0
                    ? ""
                    : size_text(part.device_used_bytes) + " used on the card");
    }
    html_.raw("</table>\n");
  }

  void peak(std::string_view name, const Peak& p, bool has_time = true) {
    html_.row(size_text(p.bytes), std::string(name),
              has_time && p.bytes != 0 ? "at " + since_start(p.time_ns) : "");
  }

  void oom(const OomReport& o) {
    html_.element("p", fmt::format("Out of memory at {}: requested {}; {}", since_start(o.time_ns),
                                   size_text(o.requested_bytes), oom_text(o)));
    frames(o.frames);
  }

  void ledger(const DeviceReport& d, const Ledger& l, std::string_view what) {
    if (l.lines.empty()) return;
    html_.element("h3", fmt::format("Card memory by owner at {}{}", since_start(l.time_ns), what));
    html_.table("size", "of what is used", "owner");
    for (const LedgerLine& item : l.lines) {
      const auto bytes = static_cast<uint64_t>(std::max<int64_t>(0, item.bytes));
      html_.row(size_text(bytes), percent_text(bytes, l.device_used_bytes), item.owner);
    }
    if (l.not_resident_bytes != 0) {
      html_.row(size_text(l.not_resident_bytes), "not on the card", kNotResident);
    }
    html_.raw("</table>\n");
    if (l.reading) html_.element("p", reading_text(l), "dim");
    if (const std::string why = above_readings_text(d, l); !why.empty()) {
      html_.element("p", why, "dim");
    }
  }

  void driver_shares(const DeviceReport& d) {
    if (d.stacks.empty()) return;
    html_.element("h3", fmt::format("Allocated from the driver and live at {}: {}",
                                    since_start(d.at_ns), size_text(d.at_totals.allocated)));
    if (!d.at_note.empty()) html_.element("p", d.at_note, "dim");
    for (const StackShare& s : d.stacks) {
      html_.element("div", fmt::format("{} in {}", size_text(s.bytes), counted(s.count, "block")));
      frames(s.frames);
    }
  }

  void shares(const DeviceReport& d) {
    if (!d.has_framework) return driver_shares(d);
    const uint64_t whole = d.at_totals.allocated;
    html_.element("h3", "Live " + instant_text(d, report_.start_ns));
    html_.element("p", totals_text(d.at_totals), "dim");
    if (!d.at_note.empty()) html_.element("p", d.at_note, "dim");
    html_.table("size", "of what is allocated", "category", "");
    for (const CategoryShare& c : d.categories) {
      html_.row(size_text(c.bytes), percent_text(c.bytes, whole),
                in_words(category_name(c.category)),
                fmt::format("{:.0f} % confidence", 100 * c.confidence));
    }
    for (const LabelShare& l : d.labels) {
      html_.row(size_text(l.bytes), percent_text(l.bytes, whole), "named \"" + l.label + "\"",
                counted(l.count, "block"));
    }
    html_.raw("</table>\n");
    html_.table("size", "of what is allocated", "blocks");
    for (const AgeShare& a : d.ages) {
      html_.row(size_text(a.bytes), percent_text(a.bytes, whole), "age: " + a.age);
    }
    for (const SizeShare& s : d.sizes) {
      html_.row(size_text(s.bytes), percent_text(s.bytes, whole),
                counted(s.count, "block") + " from " + size_text(s.from_bytes) + " up");
    }
    html_.raw("</table>\n");
  }

  void layers(const DeviceReport& d) {
    if (d.layers.empty()) return;
    html_.element("h3", "By layer");
    put_layers(html_, d);
  }

  // Nested, with the largest branch open. Children follow their parents in the list.
  void tree(const DeviceReport& d) {
    if (d.tree.empty()) return;
    html_.element("h3", "By stack");
    std::vector<uint32_t> open;  // numbers of the nodes that enclose the next one
    for (uint32_t i = 0; i < d.tree.size(); ++i) {
      const TreeNode& node = d.tree[i];
      while (!open.empty() && open.back() != node.parent) {
        html_.raw("</details>");
        open.pop_back();
      }
      html_.raw(node.bytes * 2 > d.at_totals.allocated ? "<details open>" : "<details>");
      html_.raw("<summary>");
      html_.element("span", fmt::format("{} {}", size_text(node.bytes),
                                        percent_text(node.bytes, d.at_totals.allocated)));
      html_.raw(" ");
      html_.element("span", node.frame, "frame");
      html_.raw("</summary>\n");
      open.push_back(i + 1);
    }
    for (size_t i = 0; i < open.size(); ++i) html_.raw("</details>");
    html_.raw("\n");
  }

  void holes(const DeviceReport& d) {
    const Fragmentation& f = d.fragmentation;
    if (f.holes == 0) return;
    html_.element("h3", "Holes");
    const std::string when =
        d.state_only
            ? ""
            : fmt::format(" at {} ({})", holes_time_text(d, report_.start_ns), d.fragmentation_at);
    html_.element("p", fmt::format("{} free in {}{}, largest {}; {} could be returned to "
                                   "the driver",
                                   size_text(f.cached_free_bytes), counted(f.holes, "hole"), when,
                                   size_text(f.largest_hole_bytes), size_text(f.releasable_bytes)));
    for (const PinnedHole& hole : f.largest) {
      for (const Pin& pin : hole.pins) {
        html_.element("div", fmt::format("{} in a segment of {}, pinned by a block of {}, {} old",
                                         size_text(hole.bytes), size_text(hole.segment_bytes),
                                         size_text(pin.bytes), duration_text(pin.age_ns)));
        frames(pin.frames);
      }
    }
  }

  void growth(const StepReport& s) {
    if (s.growing.empty()) return;
    html_.element("h3", "Growth per step");
    for (const GrowthShare& g : s.growing) {
      html_.element("div", fmt::format("{} per step, {} held",
                                       size_text(static_cast<uint64_t>(g.bytes_per_step)),
                                       size_text(g.held_bytes)));
      frames(g.frames);
    }
  }

  // From times and bytes to a plot.
  struct Scale {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    uint64_t top = 1;

    double x(int64_t ns) const {
      const auto span = static_cast<double>(std::max<int64_t>(1, end_ns - begin_ns));
      return kLeft + (kWidth - kLeft) * static_cast<double>(ns - begin_ns) / span;
    }
    double y(uint64_t bytes) const {
      return (kHeight - kBottom) *
             (1 - static_cast<double>(bytes) / (1.05 * static_cast<double>(top)));
    }
  };

  void begin_plot(const Scale& scale) {
    html_.raw(fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">\n", kWidth, kHeight));
    for (int i = 0; i <= 4; ++i) {
      const uint64_t bytes = scale.top / 4 * static_cast<uint64_t>(i);
      html_.raw(fmt::format(
          "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text x=\"0\" "
          "y=\"{:.1f}\">{}</text>\n",
          kLeft, kWidth, scale.y(bytes), scale.y(bytes), scale.y(bytes) + 4, size_text(bytes)));
    }
  }

  void end_plot(const Scale& scale) {
    html_.raw(
        fmt::format("<text x=\"{}\" y=\"{}\">{}</text><text x=\"{}\" y=\"{}\" "
                    "text-anchor=\"end\">{}</text></svg>\n",
                    kLeft, kHeight - 6, since_start(scale.begin_ns), kWidth, kHeight - 6,
                    since_start(scale.end_ns)));
  }

  void curve(const DeviceReport& d) {
    if (d.curve.empty()) return;
    // Not the reserved peak: what is allocated can exceed what is known to be reserved.
    uint64_t top = 1;
    for (const CurvePoint& p : d.curve) {
      top = std::max({top, p.allocated_high, p.reserved_high});
    }
    const Scale scale{d.curve.front().begin_ns, d.curve.back().end_ns, top};
    const auto x = [&](int64_t ns) { return scale.x(ns); };
    const auto y = [&](uint64_t bytes) { return scale.y(bytes); };
    begin_plot(scale);
    if (d.has_framework) {
      area(
          d, "reserved", x, y, [](const CurvePoint& p) { return p.reserved_high; },
          [](const CurvePoint& p) { return p.reserved_low; });
    }
    area(
        d, "allocated", x, y, [](const CurvePoint& p) { return p.allocated_high; },
        [](const CurvePoint& p) { return p.allocated_low; });
    for (const OomReport& o : d.ooms) {
      html_.raw(
          fmt::format("<line class=\"mark\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1}\"/>\n",
                      x(o.time_ns), kHeight - kBottom));
    }
    end_plot(scale);
    html_.element("p",
                  std::string(d.has_framework ? "dark: allocated, light: reserved"
                                              : "allocated from the driver") +
                      "; each point shows the highest value of its interval",
                  "dim");
  }

  // The area below each stretch's highest value, as one stepped path.
  template <typename X, typename Y, typename High, typename Low>
  void area(const DeviceReport& d, std::string_view name, const X& x, const Y& y, const High& high,
            const Low& low) {
    std::string path = fmt::format("M{:.1f} {:.1f}", x(d.curve.front().begin_ns), y(0));
    for (const CurvePoint& p : d.curve) {
      path += fmt::format("H{:.1f}V{:.1f}H{:.1f}V{:.1f}", x(p.begin_ns), y(high(p)), x(p.end_ns),
                          y(low(p)));
    }
    path += fmt::format("V{:.1f}Z", y(0));
    html_.raw(fmt::format("<path class=\"{}\" d=\"{}\"/>\n", name, path));
  }

  // What each category holds, as areas on top of each other.
  void categories(const RankReport& rank, const DeviceReport& d) {
    const auto curve =
        std::find_if(categories_.begin(), categories_.end(), [&](const CategoryCurve& c) {
          return c.device == d.device && c.process->info.rank == rank.rank &&
                 c.process->info.pid == rank.pid && c.process->file == rank.file;
        });
    if (curve == categories_.end() || curve->columns.empty()) return;
    uint64_t top = 1;
    for (const CategoryCurve::Column& c : curve->columns) {
      top = std::max(top, std::accumulate(c.bytes.begin(), c.bytes.end(), uint64_t{0}));
    }
    const int64_t start = curve->columns.front().begin_ns;
    const Scale scale{start, curve->columns.back().end_ns, top};
    html_.element("h3", "By category over time");
    begin_plot(scale);
    for (size_t g = 0; g < kCategoryOrder.size(); ++g) category_area(*curve, g, scale);
    end_plot(scale);
    html_.raw("<p class=\"dim\">");
    for (size_t g = 0; g < kCategoryOrder.size(); ++g) {
      if (std::none_of(curve->columns.begin(), curve->columns.end(),
                       [&](const CategoryCurve::Column& c) { return c.bytes[g] != 0; })) {
        continue;
      }
      html_.raw(fmt::format("<span class=\"key\" style=\"background:{}\"></span>",
                            category_paint(kCategoryOrder[g])));
      html_.text(in_words(category_name(kCategoryOrder[g])));
      html_.raw(" ");
    }
    html_.raw("</p>\n");
  }

  // Between what the categories below it hold and that plus its own.
  void category_area(const CategoryCurve& curve, size_t group, const Scale& scale) {
    const auto below = [&](const CategoryCurve::Column& c, size_t groups) {
      return std::accumulate(c.bytes.begin(), c.bytes.begin() + static_cast<std::ptrdiff_t>(groups),
                             uint64_t{0});
    };
    std::string forth;
    std::string back;
    for (const CategoryCurve::Column& c : curve.columns) {
      forth += fmt::format("{}{:.1f} {:.1f}H{:.1f}", forth.empty() ? "M" : "L", scale.x(c.begin_ns),
                           scale.y(below(c, group + 1)), scale.x(c.end_ns));
    }
    for (auto c = curve.columns.rbegin(); c != curve.columns.rend(); ++c) {
      back += fmt::format("L{:.1f} {:.1f}H{:.1f}", scale.x(c->end_ns), scale.y(below(*c, group)),
                          scale.x(c->begin_ns));
    }
    html_.raw(fmt::format("<path fill=\"{}\" d=\"{}{}Z\"/>\n",
                          category_paint(kCategoryOrder[group]), forth, back));
  }

  const Report& report_;
  std::span<const CategoryCurve> categories_;
  HtmlWriter html_;
};

}  // namespace

std::string report_as_html(const Report& report, std::span<const CategoryCurve> categories) {
  return Page(report, categories).run();
}

}  // namespace tidemark
