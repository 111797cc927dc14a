#include "export/report/diff_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>

#include "analysis/names/stack_lines.h"
#include "analysis/report/renamed_files.h"
#include "analysis/wording.h"
#include "export/report/layer_table.h"
#include "export/report/report_wording.h"
#include "export/safe_text.h"

namespace tidemark {

namespace {

constexpr size_t kMostDevices = 64;

class TextDiff {
 public:
  TextDiff(const Diff& diff, const TextOptions& options) : diff_(diff), options_(options) {}

  std::string run() {
    line(fmt::format("before  {}", diff_.before_path));
    line(fmt::format("after   {}", diff_.after_path));
    for (const std::string& text : diff_.notes) line(text);
    for (const std::string& text : diff_.losses) line("! " + text);
    ids(diff_.before_has_losses ? "findings only after, as far as could be read" : "new findings",
        diff_.appeared);
    ids(diff_.after_has_losses ? "findings only before, as far as could be read" : "findings gone",
        diff_.disappeared);
    ids(diff_.before_has_losses ? "notes only after, as far as could be read" : "new notes",
        diff_.notes_appeared);
    ids(diff_.after_has_losses ? "notes only before, as far as could be read" : "notes gone",
        diff_.notes_disappeared);
    for (const std::string& text : diff_.unpaired) line(text);
    if (diff_.devices.size() > kMostDevices) {
      most_changed();
    } else {
      for (const DeviceDiff& d : diff_.devices) device(d);
    }
    if (diff_.devices.empty()) {
      line(diff_.before_has_losses || diff_.after_has_losses
               ? "nothing to compare could be read"
               : "nothing was recorded on any device");
    }
    return std::move(out_);
  }

 private:
  void line(std::string_view text = {}) {
    out_ += safe_text(text);
    out_ += '\n';
  }

  void ids(std::string_view what, const std::vector<std::string>& list) {
    if (!list.empty()) line(fmt::format("{}: {}", what, fmt::join(list, ", ")));
  }

  static std::string signed_size(int64_t bytes) {
    if (bytes == 0) return "same";
    const auto magnitude = static_cast<uint64_t>(bytes < 0 ? -bytes : bytes);
    return (bytes < 0 ? "-" : "+") + size_text(magnitude);
  }

  void device(const DeviceDiff& d) {
    line();
    const std::string before = diff_place(d.before_rank, d.before_pid, d.before_device);
    const std::string after = diff_place(d.after_rank, d.after_pid, d.after_device);
    line(before == after ? before : before + " vs. " + after);
    const bool shared = std::any_of(d.owners.begin(), d.owners.end(), [](const DiffLine& l) {
      return l.name == "other_processes" && l.before_bytes + l.after_bytes != 0;
    });
    for (const DiffLine& l : d.peaks) {
      const bool of_all = shared && l.name.starts_with("card used");
      row(l, of_all ? l.name + " (with other processes)" : l.name);
    }
    section("by category", d.categories);
    section("by owner", d.owners);
    layers(d.layers);
    if (d.stacks.empty()) return;
    line(d.state_only ? "  by stack" : "  by stack at the peak");
    const std::vector<DiffLine> lines = named(d.stacks);
    const size_t shown = std::min(options_.stacks, lines.size());
    for (size_t i = 0; i < shown; ++i) row(lines[i], lines[i].name);
    if (shown < lines.size()) {
      line(fmt::format("    ... {} more stacks; --stacks N or --json shows them",
                       lines.size() - shown));
    }
  }

  // Of very many devices, those that changed most.
  void most_changed() {
    constexpr size_t kShown = 8;
    std::vector<const DeviceDiff*> order;
    size_t grew = 0;
    size_t shrank = 0;
    for (const DeviceDiff& d : diff_.devices) {
      order.push_back(&d);
      grew += change_of(d) > 0;
      shrank += change_of(d) < 0;
    }
    std::stable_sort(order.begin(), order.end(), [](const DeviceDiff* a, const DeviceDiff* b) {
      return std::abs(change_of(*a)) > std::abs(change_of(*b));
    });
    line();
    line(fmt::format("{} compared: the peak grew on {} and shrank on {}; the greatest changes:",
                     counted(order.size(), "device"), grew, shrank));
    for (size_t i = 0; i < kShown; ++i) device(*order[i]);
    line();
    line("--rank N compares one rank with its stacks; --json lists all devices");
  }

  // Of the first peak that both have.
  static int64_t change_of(const DeviceDiff& d) {
    const auto both = std::find_if(d.peaks.begin(), d.peaks.end(),
                                   [](const DiffLine& l) { return l.comparable(); });
    return both == d.peaks.end() ? 0 : both->change();
  }

  // "main train.py:27 (was :21)". That its file was another one is said once, above.
  static std::string with_old_line(const std::string& now, const std::string& before) {
    const size_t colon = before.rfind(':');
    if (colon == std::string::npos || now.ends_with(before.substr(colon))) return now;
    return now + " (was " + before.substr(colon) + ")";
  }

  static std::vector<std::string> python_frames(const std::vector<std::string>& frames) {
    std::vector<std::string> python;
    std::copy_if(frames.begin(), frames.end(), std::back_inserter(python),
                 [](const std::string& f) { return f.find(".py:") != std::string::npos; });
    return python;
  }

  // What one of a stack's lines of Python was before; empty if that is not known. Paired stacks may
  // differ in their native frames and in their callers.
  static std::string earlier(const DiffLine& l, const std::string& frame) {
    const std::vector<std::string> now = python_frames(l.frames);
    const std::vector<std::string> before = python_frames(l.before_frames);
    if (now.size() != before.size()) return "";
    const auto at = static_cast<size_t>(std::find(now.begin(), now.end(), frame) - now.begin());
    if (at == now.size()) return "";
    const auto function = [](const std::string& f) { return f.substr(0, f.find(' ')); };
    return is_same_function(function(before[at]), function(frame)) ? before[at] : "";
  }

  // Stacks by their most useful line. Where several share it, the innermost line is added, and then
  // the caller by which they differ; those that still read the same become one.
  static std::vector<DiffLine> named(const std::vector<DiffLine>& stacks) {
    const auto name_by = [](const DiffLine& l, auto line_of) {
      if (l.before_history) return std::string(kBeforeRecording);
      return with_old_line(line_of(l.frames),
                           l.before_frames.empty() ? "" : line_of(l.before_frames));
    };
    std::map<std::string, size_t> uses;
    for (const DiffLine& l : stacks) ++uses[name_by(l, headline_of)];
    std::vector<std::string> names;
    std::map<std::string, std::vector<size_t>> alike;  // name -> in `stacks`
    for (const DiffLine& l : stacks) {
      std::string name = name_by(l, headline_of);
      const std::string inner = name_by(l, inner_line_of);
      if (uses[name] > 1 && !inner.empty() && inner != name) name += ", in " + inner;
      alike[name].push_back(names.size());
      names.push_back(std::move(name));
    }
    std::vector<DiffLine> lines;
    std::map<std::string, size_t> at;  // name -> in `lines`
    for (size_t i = 0; i < stacks.size(); ++i) {
      std::string name = names[i];
      for (const size_t other : alike[names[i]]) {
        const std::string caller = caller_unlike(stacks[i].frames, stacks[other].frames);
        if (caller.empty()) continue;
        name += ", called by " + with_old_line(caller, earlier(stacks[i], caller));
        break;
      }
      const auto [known, fresh] = at.try_emplace(name, lines.size());
      if (fresh) lines.push_back({name, {}, {}, 0, 0});
      lines[known->second].before_bytes += stacks[i].before_bytes;
      lines[known->second].after_bytes += stacks[i].after_bytes;
    }
    std::erase_if(lines, [](const DiffLine& l) { return l.change() == 0; });
    std::stable_sort(lines.begin(), lines.end(), [](const DiffLine& a, const DiffLine& b) {
      return std::abs(a.change()) > std::abs(b.change());
    });
    return lines;
  }

  void section(std::string_view title, const std::vector<DiffLine>& lines) {
    const bool changed =
        std::any_of(lines.begin(), lines.end(), [](const DiffLine& l) { return l.change() != 0; });
    if (!changed) return;
    line(fmt::format("  {}", title));
    for (const DiffLine& l : lines) {
      if (l.change() != 0) row(l, l.name);
    }
  }

  void layers(const std::vector<ModuleRow>& rows) {
    constexpr size_t kLines = 24;
    std::vector<uint64_t> changes;
    uint64_t most = 0;
    for (const ModuleRow& r : rows) {
      const uint64_t before = r.amounts[0];
      const uint64_t after = r.amounts[1];
      changes.push_back(std::max(before, after) - std::min(before, after));
      if (!r.path.empty()) most = std::max(most, changes.back());
    }
    if (most == 0) return;
    line("  by nn.Module");
    const std::vector<size_t> shown = main_rows(rows, changes, most, kLines);
    for (const size_t i : shown) {
      DiffLine l;
      l.before_bytes = rows[i].amounts[0];
      l.after_bytes = rows[i].amounts[1];
      row(l, layer_name(rows, i, SIZE_MAX));
    }
    const auto changed = static_cast<size_t>(
        std::count_if(changes.begin(), changes.end(), [](uint64_t c) { return c != 0; }));
    if (shown.size() < changed) {
      line(fmt::format("    ... {} more; --json shows them", changed - shown.size()));
    }
  }

  void row(const DiffLine& l, std::string_view name) {
    const auto side = [](uint64_t bytes, bool known) {
      return known ? size_text(bytes) : std::string("not recorded");
    };
    line(fmt::format(
        "    {:>12}  {:>10} -> {:>10}  {}", l.comparable() ? signed_size(l.change()) : "",
        side(l.before_bytes, l.before_known), side(l.after_bytes, l.after_known), name));
  }

  const Diff& diff_;
  const TextOptions& options_;
  std::string out_;
};

}  // namespace

std::string diff_as_text(const Diff& diff, const TextOptions& options) {
  return TextDiff(diff, options).run();
}

}  // namespace tidemark
