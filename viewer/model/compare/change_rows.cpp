#include "viewer/model/compare/change_rows.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "analysis/report/diff.h"
#include "analysis/report/stack_pairs.h"
#include "analysis/wording.h"
#include "viewer/model/owner_names.h"

namespace tidemark::view {

namespace {

// What the line calls, if that is known, and the line.
using CallAndLine = std::vector<std::string>;

std::map<CallAndLine, uint64_t> bytes_by_call(const Model& model, const Lane& lane,
                                              const LiveSums& live) {
  const FrameText& text = model.text_of(lane);
  std::map<std::pair<uint32_t, bool>, uint64_t> by_stack;
  // Lines that have nothing at this instant, too: they must not be paired with other lines.
  for (const AllocationKind& kind : lane.memory->allocations.kinds()) {
    if (kind.stack != 0) by_stack.try_emplace({kind.stack, false});
  }
  for (const StackRow& row : live.stacks) by_stack[{row.stack, row.before_recording}] += row.bytes;
  std::map<CallAndLine, uint64_t> by_call;
  for (const auto& [stack, bytes] : by_stack) {
    const auto [id, before_recording] = stack;
    const std::string headline(text.headline(id, before_recording));
    const std::string line = id != 0 ? text.line(id) : headline;
    const bool has_call = headline.starts_with(line) && headline.size() > line.size();
    by_call[{has_call ? headline.substr(line.size()) : "", line}] += bytes;
  }
  return by_call;
}

// The greatest change first.
void add_sorted(std::vector<ChangeRow> changed, std::vector<ChangeRow>& rows) {
  std::stable_sort(changed.begin(), changed.end(), [](const ChangeRow& a, const ChangeRow& b) {
    return std::abs(a.change()) > std::abs(b.change());
  });
  rows.insert(rows.end(), changed.begin(), changed.end());
}

void add_lines(const Model& model, const Lane& lane, const Moment& now, const Compared& before,
               std::vector<ChangeRow>& rows) {
  StackPairs calls;
  for (const auto& [call, bytes] : bytes_by_call(model, lane, now.live)) {
    calls.add_after(call, bytes);
  }
  for (const auto& [call, bytes] : bytes_by_call(before.model, before.lane, before.moment.live)) {
    calls.add_before(call, bytes);
  }
  for (const RenamedFile& file : calls.renamed()) rows.push_back({file.text(), 0, 0, true});
  rows.push_back({"by line, at these two instants", 0, 0, true});
  std::map<std::string, ChangeRow> by_line;
  for (const PairedStack& call : calls.pair()) {
    ChangeRow& row = by_line[call.frames.back()];
    if (row.name.empty()) row.name = call.frames.back();
    if (!call.before_frames.empty() && row.name == call.frames.back()) {
      const std::string& old = call.before_frames.back();
      const size_t colon = old.rfind(':');
      const std::string old_line = colon == std::string::npos ? "" : old.substr(colon);
      if (!row.name.ends_with(old_line)) row.name += " (was " + old_line + ")";
    }
    row.before += call.before_bytes;
    row.after += call.after_bytes;
  }
  std::vector<ChangeRow> changed;
  for (auto& [line, row] : by_line) {
    if (row.change() != 0) changed.push_back(std::move(row));
  }
  add_sorted(std::move(changed), rows);
}

void add_categories(const Moment& now, const Compared& before, std::vector<ChangeRow>& rows) {
  std::map<Category, ChangeRow> by_category;
  for (const CategoryRow& row : before.moment.live.categories) {
    by_category[row.category].before = row.bytes;
  }
  for (const CategoryRow& row : now.live.categories) by_category[row.category].after = row.bytes;
  if (by_category.empty()) return;
  rows.push_back({"by category, at these two instants", 0, 0, true});
  std::vector<ChangeRow> changed;
  for (auto& [category, row] : by_category) {
    row.name = in_words(category_name(category));
    changed.push_back(std::move(row));
  }
  add_sorted(std::move(changed), rows);
}

// A report of this device only, so that any two can be compared.
Report report_of(const Model& model, const Lane& lane) {
  Report report;
  report.path = model.trace.path;
  if (lane.process >= model.report.ranks.size()) return report;
  RankReport rank = model.report.ranks[lane.process];
  std::erase_if(rank.devices,
                [&](const DeviceReport& d) { return d.device != lane.memory->device; });
  report.ranks.push_back(std::move(rank));
  return report;
}

void add_peaks(const Model& model, const Lane& lane, const Compared& before,
               std::vector<ChangeRow>& rows) {
  if (&before.lane == &lane) return;  // its own peaks
  const Result<Diff> diff = compare(report_of(before.model, before.lane), report_of(model, lane));
  if (!diff || diff->devices.size() != 1) return;
  const auto add = [&](const char* heading, const std::vector<DiffLine>& lines) {
    if (std::all_of(lines.begin(), lines.end(), [](const DiffLine& l) {
          return !l.comparable() || (l.before_bytes == 0 && l.after_bytes == 0);
        })) {
      return;
    }
    rows.push_back({heading, 0, 0, true});
    for (const DiffLine& l : lines) {
      if (l.before_bytes + l.after_bytes == 0 || !l.comparable()) continue;
      rows.push_back({in_words(l.name), l.before_bytes, l.after_bytes, false});
    }
  };
  add("peaks of both", diff->devices[0].peaks);
  add("by category, each at its peak", diff->devices[0].categories);
  add("by owner, each at its peak", diff->devices[0].owners);
}

}  // namespace

std::vector<ChangeRow> change_rows(const Model& model, const Lane& lane, const Moment& now,
                                   const Compared& before) {
  std::vector<ChangeRow> rows;
  const MemoryTotals& a = before.moment.state.totals;
  const MemoryTotals& b = now.state.totals;
  rows.push_back({"at these two instants", 0, 0, true});
  rows.push_back({"allocated", a.allocated, b.allocated, false});
  rows.push_back({"reserved", a.reserved, b.reserved, false});
  add_categories(now, before, rows);
  add_lines(model, lane, now, before, rows);
  add_peaks(model, lane, before, rows);
  return rows;
}

}  // namespace tidemark::view
