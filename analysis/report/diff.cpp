#include "analysis/report/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

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
      if (d.events != 0 || d.driver_peak.bytes != 0) places.push_back({&rank, &d});
    }
  }
  return places;
}

void by_change(std::vector<DiffLine>& lines) {
  std::stable_sort(lines.begin(), lines.end(), [](const DiffLine& a, const DiffLine& b) {
    return std::abs(a.change()) > std::abs(b.change());
  });
}

template <typename Key>
using Pairs = std::map<Key, std::pair<uint64_t, uint64_t>>;

std::vector<DiffLine> named_lines(const Pairs<std::string>& pairs) {
  std::vector<DiffLine> lines;
  for (const auto& [name, bytes] : pairs) lines.push_back({name, {}, bytes.first, bytes.second});
  by_change(lines);
  return lines;
}

std::vector<DiffLine> categories_of(const DeviceReport& a, const DeviceReport& b) {
  Pairs<std::string> pairs;
  for (const CategoryShare& c : a.categories) {
    pairs[std::string(category_name(c.category))].first += c.bytes;
  }
  for (const CategoryShare& c : b.categories) {
    pairs[std::string(category_name(c.category))].second += c.bytes;
  }
  return named_lines(pairs);
}

std::vector<DiffLine> owners_of(const DeviceReport& a, const DeviceReport& b) {
  Pairs<std::string> pairs;
  const auto positive = [](int64_t bytes) {
    return static_cast<uint64_t>(std::max<int64_t>(0, bytes));
  };
  for (const LedgerLine& l : a.ledger.lines) pairs[l.owner].first += positive(l.bytes);
  for (const LedgerLine& l : b.ledger.lines) pairs[l.owner].second += positive(l.bytes);
  return named_lines(pairs);
}

std::vector<DiffLine> stacks_of(const DeviceReport& a, const DeviceReport& b) {
  Pairs<std::vector<std::string>> pairs;
  for (const StackShare& s : a.stacks) pairs[s.frames].first += s.bytes;
  for (const StackShare& s : b.stacks) pairs[s.frames].second += s.bytes;
  std::vector<DiffLine> lines;
  for (const auto& [frames, bytes] : pairs) {
    if (bytes.first != bytes.second) lines.push_back({"", frames, bytes.first, bytes.second});
  }
  by_change(lines);
  return lines;
}

std::set<std::string> alarms(const Report& report) {
  std::set<std::string> ids;
  for (const Finding& f : report.findings) {
    if (f.severity != kInfo) ids.insert(f.id);
  }
  return ids;
}

}  // namespace

Result<Diff> compare(const Report& before, const Report& after) {
  Diff diff;
  diff.before_path = before.path;
  diff.after_path = after.path;
  const std::vector<Place> a = places_of(before);
  const std::vector<Place> b = places_of(after);
  if (a.size() != b.size()) {
    return Error{fmt::format(
        "{} has {}, {} has {}: choose one of each with --rank and "
        "--other-rank",
        before.path, counted(a.size(), "device"), after.path, counted(b.size(), "device"))};
  }
  for (size_t i = 0; i < a.size(); ++i) {
    const DeviceReport& x = *a[i].device;
    const DeviceReport& y = *b[i].device;
    DeviceDiff d;
    d.before_rank = a[i].rank->rank;
    d.after_rank = b[i].rank->rank;
    d.before_device = x.device;
    d.after_device = y.device;
    d.peaks = {{"allocated peak", {}, x.allocated_peak.bytes, y.allocated_peak.bytes},
               {"requested peak", {}, x.requested_peak.bytes, y.requested_peak.bytes},
               {"reserved peak", {}, x.reserved_peak.bytes, y.reserved_peak.bytes},
               {"driver peak", {}, x.driver_peak.bytes, y.driver_peak.bytes},
               {"card used peak", {}, x.device_used_peak.bytes, y.device_used_peak.bytes}};
    std::erase_if(d.peaks,
                  [](const DiffLine& l) { return l.before_bytes == 0 && l.after_bytes == 0; });
    d.categories = categories_of(x, y);
    d.owners = owners_of(x, y);
    d.stacks = stacks_of(x, y);
    diff.devices.push_back(std::move(d));
  }
  const auto old_ids = alarms(before);
  const auto new_ids = alarms(after);
  std::set_difference(new_ids.begin(), new_ids.end(), old_ids.begin(), old_ids.end(),
                      std::back_inserter(diff.appeared));
  std::set_difference(old_ids.begin(), old_ids.end(), new_ids.begin(), new_ids.end(),
                      std::back_inserter(diff.disappeared));
  return diff;
}

}  // namespace tidemark
