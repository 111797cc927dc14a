#include "analysis/report/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "analysis/insight/unowned_weights.h"
#include "analysis/names/stack_lines.h"
#include "analysis/report/restarts.h"
#include "analysis/report/stack_pairs.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

struct Place {
  const RankReport* rank = nullptr;
  const DeviceReport* device = nullptr;
};

// Devices with any activity.
std::vector<Place> places_of(const Report& report) {
  std::vector<Place> places;
  for (const RankReport& rank : report.ranks) {
    for (const DeviceReport& d : rank.devices) {
      if (d.events != 0 || d.reserved_peak.bytes != 0 || d.driver_peak.bytes != 0)
        places.push_back({&rank, &d});
    }
  }
  return places;
}

void by_change(std::vector<DiffLine>& lines) {
  std::stable_sort(lines.begin(), lines.end(), [](const DiffLine& a, const DiffLine& b) {
    return std::abs(a.change()) > std::abs(b.change());
  });
}

using Pairs = std::map<std::string, std::pair<uint64_t, uint64_t>>;

std::vector<DiffLine> named_lines(const Pairs& pairs) {
  std::vector<DiffLine> lines;
  for (const auto& [name, bytes] : pairs)
    lines.push_back({name, {}, {}, bytes.first, bytes.second});
  by_change(lines);
  return lines;
}

// The peaks that at least one of them has.
std::vector<DiffLine> peaks_of(const DeviceReport& a, const DeviceReport& b) {
  const std::string_view peak = a.state_only && b.state_only ? "" : " peak";  // neither has any
  std::vector<DiffLine> lines;
  const auto add = [&](std::string_view what, Peak DeviceReport::*which, bool of_torch) {
    // Of a device with memory, a peak of 0 bytes was not recorded.
    const auto known = [&](const DeviceReport& d) {
      return (d.*which).bytes != 0 || (of_torch && d.has_framework && d.allocated_peak.bytes == 0);
    };
    if ((a.*which).bytes == 0 && (b.*which).bytes == 0) return;
    DiffLine& line = lines.emplace_back();
    line.name = fmt::format("{}{}", what, peak);
    line.before_bytes = (a.*which).bytes;
    line.after_bytes = (b.*which).bytes;
    line.before_known = known(a);
    line.after_known = known(b);
  };
  add("allocated", &DeviceReport::allocated_peak, true);
  add("requested", &DeviceReport::requested_peak, true);
  add("reserved", &DeviceReport::reserved_peak, true);
  add("driver", &DeviceReport::driver_peak, false);
  add("card used", &DeviceReport::device_used_peak, false);
  return lines;
}

std::vector<DiffLine> categories_of(const DeviceReport& a, const DeviceReport& b) {
  if (a.has_framework != b.has_framework) return {};  // only PyTorch's memory has categories
  Pairs pairs;
  for (const CategoryShare& c : a.categories) {
    pairs[std::string(category_name(c.category))].first += c.bytes;
  }
  for (const CategoryShare& c : b.categories) {
    pairs[std::string(category_name(c.category))].second += c.bytes;
  }
  return named_lines(pairs);
}

std::vector<DiffLine> owners_of(const DeviceReport& a, const DeviceReport& b) {
  // Owners other than PyTorch are known only from the driver's calls.
  if ((a.driver_peak.bytes == 0) != (b.driver_peak.bytes == 0)) return {};
  Pairs pairs;
  const auto positive = [](int64_t bytes) {
    return static_cast<uint64_t>(std::max<int64_t>(0, bytes));
  };
  for (const LedgerLine& l : a.ledger.lines) pairs[l.owner].first += positive(l.bytes);
  for (const LedgerLine& l : b.ledger.lines) pairs[l.owner].second += positive(l.bytes);
  std::vector<DiffLine> lines = named_lines(pairs);
  // What others do on the card says nothing of the program.
  std::stable_partition(lines.begin(), lines.end(),
                        [](const DiffLine& l) { return l.name != "other_processes"; });
  return lines;
}

std::vector<DiffLine> modules_of(const DeviceReport& a, const DeviceReport& b) {
  if (a.modules.empty() || b.modules.empty()) return {};
  Pairs pairs;
  for (const ModuleShare& m : a.modules) pairs[m.module].first += m.bytes;
  for (const ModuleShare& m : b.modules) pairs[m.module].second += m.bytes;
  pairs.erase("");
  std::erase_if(pairs, [](const auto& p) { return p.second.first == p.second.second; });
  return named_lines(pairs);
}

std::string weights_note(const DeviceReport& a, const DeviceReport& b) {
  if (a.modules.empty() || b.modules.empty()) return {};
  const uint64_t before = unowned_weights(a.modules);
  const uint64_t after = unowned_weights(b.modules);
  if (before <= a.at_totals.allocated / 100 && after <= b.at_totals.allocated / 100) return {};
  return fmt::format(
      "by nn.Module, weights that were made or loaded on the device are under (none), {} before "
      "and {} after: which module has them is not recorded",
      size_text(before), size_text(after));
}

// Both held about the same, and changed by about the same.
bool changed_alike(const ModuleAmounts& a, const ModuleAmounts& b) {
  const auto change = [](const ModuleAmounts& m) {
    return static_cast<int64_t>(m[1]) - static_cast<int64_t>(m[0]);
  };
  const int64_t most = std::max(std::abs(change(a)), std::abs(change(b)));
  return about_equal(a, b) && std::abs(change(a) - change(b)) <= most / 20;
}

std::vector<ModuleRow> layers_of(const DeviceReport& a, const DeviceReport& b) {
  if (a.modules.empty() || b.modules.empty()) return {};
  std::vector<ModulePart> parts;
  for (const ModuleShare& m : a.modules) parts.push_back({m.module, m.class_name, {m.bytes, 0}});
  for (const ModuleShare& m : b.modules) parts.push_back({m.module, m.class_name, {0, m.bytes}});
  return module_tree(parts, changed_alike);
}

// All of a snapshot without history is older than any.
bool is_older(const DeviceReport& d, const StackShare& share) {
  return share.before_history && !d.state_only;
}

// Adds a note on each file that is compared with one of another name.
std::vector<DiffLine> stacks_of(const DeviceReport& a, const DeviceReport& b,
                                std::vector<std::string>& notes) {
  StackPairs pairs;
  DiffLine older;
  older.before_history = true;
  for (const StackShare& s : a.stacks) {
    is_older(a, s) ? void(older.before_bytes += s.bytes) : pairs.add_before(s.frames, s.bytes);
  }
  for (const StackShare& s : b.stacks) {
    is_older(b, s) ? void(older.after_bytes += s.bytes) : pairs.add_after(s.frames, s.bytes);
  }
  for (const RenamedFile& file : pairs.renamed()) {
    const std::string text = file.text();
    const bool own = is_users_code(file.after) && is_users_code(file.before);
    if (own && std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(text);
  }
  std::vector<DiffLine> lines;
  if (older.change() != 0) lines.push_back(older);
  for (PairedStack& p : pairs.pair()) {
    if (p.before_bytes == p.after_bytes) continue;
    lines.push_back(
        {"", std::move(p.frames), std::move(p.before_frames), p.before_bytes, p.after_bytes});
  }
  by_change(lines);
  return lines;
}

// Where the rank and the device name more than one process.
uint64_t pid_if_needed(const Report& report, const Place& place) {
  const int64_t rank = place.rank->rank;
  if (rank >= 0) return is_restarted(report, rank) ? place.rank->pid : 0;
  const auto alike = [&](const RankReport& r) {
    return r.rank < 0 && std::any_of(r.devices.begin(), r.devices.end(), [&](const auto& d) {
             return d.device == place.device->device;
           });
  };
  return std::count_if(report.ranks.begin(), report.ranks.end(), alike) > 1 ? place.rank->pid : 0;
}

std::string only_in(const Place& place, const Report& report, const Report& other) {
  return fmt::format(
      "{} is only in {}{}",
      diff_place(place.rank->rank, pid_if_needed(report, place), place.device->device), report.path,
      has_losses(other) ? ", or was lost in the other" : "");
}

// Several processes of one rank are not several ranks.
bool has_several_ranks(const Report& report) {
  return std::any_of(report.ranks.begin(), report.ranks.end(), [&](const RankReport& rank) {
    return rank.rank != report.ranks.front().rank;
  });
}

std::vector<std::pair<Place, Place>> pairs_of(const Report& before, const Report& after,
                                              std::vector<std::string>& unpaired) {
  const std::vector<Place> a = places_of(before);
  const std::vector<Place> b = places_of(after);
  if (a.size() == 1 && b.size() == 1) return {{a[0], b[0]}};
  const bool by_rank = has_several_ranks(before) || has_several_ranks(after);
  const auto key = [&](const Place& p) {
    return std::pair(by_rank ? p.rank->rank : -1, p.device->device);
  };
  std::map<std::pair<int64_t, int64_t>, std::deque<Place>> rest;
  for (const Place& p : b) rest[key(p)].push_back(p);
  std::vector<std::pair<Place, Place>> pairs;
  for (const Place& p : a) {
    std::deque<Place>& same = rest[key(p)];
    if (same.empty()) {
      unpaired.push_back(only_in(p, before, after));
    } else {
      pairs.emplace_back(p, same.front());
      same.pop_front();
    }
  }
  for (const auto& [place, left] : rest) {
    for (const Place& p : left) unpaired.push_back(only_in(p, after, before));
  }
  return pairs;
}

// Findings that fail a run, or notes only, by id and, in a run with several devices, by place.
std::set<std::string> finding_ids(const Report& report, bool notes) {
  std::set<std::string> ids;
  for (const Finding& f : report.findings) {
    if ((f.severity == kInfo) != notes) continue;
    const bool several = std::any_of(report.ranks.begin(), report.ranks.end(), [&](const auto& r) {
      return r.rank == f.rank && r.devices.size() > 1;
    });
    ids.insert(several ? fmt::format("{} on cuda:{}", f.id, f.device) : f.id);
  }
  return ids;
}

bool is_window(const Report& report) {
  return std::any_of(report.ranks.begin(), report.ranks.end(), [](const RankReport& rank) {
    return std::any_of(rank.devices.begin(), rank.devices.end(),
                       [](const DeviceReport& d) { return d.run.is_window(); });
  });
}

// When the whole run began; INT64_MAX: not known.
int64_t begin_of_run(const Report& report) {
  int64_t begin_ns = INT64_MAX;
  for (const RankReport& rank : report.ranks) {
    for (const DeviceReport& d : rank.devices) {
      if (!d.run.empty()) begin_ns = std::min(begin_ns, d.run.begin_ns());
    }
  }
  return begin_ns;
}

// The same processes: a pid is used again, but not by two at the same time.
bool is_one_run(const Report& before, const Report& after) {
  if (begin_of_run(before) > after.end_ns || begin_of_run(after) > before.end_ns) return false;
  const auto key = [](const RankReport& rank) { return std::pair(rank.host, rank.pid); };
  std::set<std::pair<std::string, uint64_t>> known;
  for (const RankReport& rank : before.ranks) known.insert(key(rank));
  return !after.ranks.empty() &&
         std::all_of(after.ranks.begin(), after.ranks.end(),
                     [&](const RankReport& rank) { return known.contains(key(rank)); });
}

std::vector<std::string> window_notes(const Report& before, const Report& after) {
  const bool first = is_window(before);
  const bool second = is_window(after);
  if (!first && !second) return {};
  const auto length = [](const Report& r) { return duration_text(r.end_ns - r.start_ns); };
  if (first != second) {
    return {
        fmt::format("{} is a kept window of {}: its peaks are those of that stretch, not of the "
                    "whole run",
                    first ? "before" : "after", length(first ? before : after))};
  }
  std::string text = fmt::format("both are kept windows ({} and {}): peaks are those within them",
                                 length(before), length(after));
  if (!is_one_run(before, after)) return {text};
  const int64_t apart_ns = after.end_ns - before.end_ns;
  return {text, fmt::format("they are of one run; the second one ends {} {}",
                            duration_text(apart_ns < 0 ? -apart_ns : apart_ns),
                            apart_ns < 0 ? "earlier" : "later")};
}

}  // namespace

std::string diff_place(int64_t rank, uint64_t pid, int64_t device) {
  const std::string process = rank < 0   ? (pid == 0 ? "" : fmt::format("pid {} ", pid))
                              : pid == 0 ? fmt::format("rank {} ", rank)
                                         : fmt::format("rank {} (pid {}) ", rank, pid);
  return fmt::format("{}cuda:{}", process, device);
}

Result<Diff> compare(const Report& before, const Report& after) {
  Diff diff;
  diff.before_path = before.path;
  diff.after_path = after.path;
  diff.before_has_losses = has_losses(before);
  diff.after_has_losses = has_losses(after);
  const auto pairs = pairs_of(before, after, diff.unpaired);
  if (pairs.empty() && !diff.unpaired.empty()) {
    return Error{fmt::format(
        "{} and {} have no rank and device in common{}: choose one of each with --rank and "
        "--other-rank",
        before.path, after.path,
        diff.before_has_losses || diff.after_has_losses ? " in what could be read" : "")};
  }
  for (const auto& [earlier, later] : pairs) {
    const DeviceReport& x = *earlier.device;
    const DeviceReport& y = *later.device;
    DeviceDiff d;
    d.before_rank = earlier.rank->rank;
    d.after_rank = later.rank->rank;
    d.before_pid = pid_if_needed(before, earlier);
    d.after_pid = pid_if_needed(after, later);
    d.before_device = x.device;
    d.after_device = y.device;
    d.state_only = x.state_only && y.state_only;
    d.peaks = peaks_of(x, y);
    d.categories = categories_of(x, y);
    d.owners = owners_of(x, y);
    if (earlier.rank->detailed && later.rank->detailed) {
      d.modules = modules_of(x, y);
      d.layers = layers_of(x, y);
      d.stacks = stacks_of(x, y, diff.notes);
      const std::string weights = weights_note(x, y);
      if (!weights.empty() && !d.layers.empty()) {
        const std::string place = diff_place(d.before_rank, d.before_pid, d.before_device);
        diff.notes.push_back(pairs.size() > 1 ? place + ": " + weights : weights);
      }
    }
    diff.devices.push_back(std::move(d));
  }
  const std::vector<std::string> windows = window_notes(before, after);
  diff.notes.insert(diff.notes.begin(), windows.begin(), windows.end());
  const auto old_ids = finding_ids(before, false);
  const auto new_ids = finding_ids(after, false);
  std::set_difference(new_ids.begin(), new_ids.end(), old_ids.begin(), old_ids.end(),
                      std::back_inserter(diff.appeared));
  std::set_difference(old_ids.begin(), old_ids.end(), new_ids.begin(), new_ids.end(),
                      std::back_inserter(diff.disappeared));
  const auto old_notes = finding_ids(before, true);
  const auto new_notes = finding_ids(after, true);
  // What is a note in one and more in the other is neither new nor gone.
  const auto without = [](const std::set<std::string>& these, const std::set<std::string>& notes,
                          const std::set<std::string>& alarms) {
    std::vector<std::string> ids;
    for (const std::string& id : these) {
      if (!notes.contains(id) && !alarms.contains(id)) ids.push_back(id);
    }
    return ids;
  };
  diff.notes_appeared = without(new_notes, old_notes, old_ids);
  diff.notes_disappeared = without(old_notes, new_notes, new_ids);
  return diff;
}

}  // namespace tidemark
