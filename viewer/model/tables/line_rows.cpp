#include "viewer/model/tables/line_rows.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace tidemark::view {

namespace {

constexpr int kForks = 8;  // more are not named

struct Path {
  std::vector<uint32_t> frames;  // the outermost first
  size_t place = 0;              // of its stack
};

// Of paths that are sorted and agree in their first `depth` frames.
void add_forks(const FrameText& text, std::vector<Path>::const_iterator begin,
               std::vector<Path>::const_iterator end, size_t depth, int forks,
               const std::string& so_far, std::vector<std::string>& out) {
  // Sorted, so all agree where the first and the last do.
  const std::vector<uint32_t>& first = begin->frames;
  const std::vector<uint32_t>& last = std::prev(end)->frames;
  while (depth < first.size() && depth < last.size() && first[depth] == last[depth]) ++depth;
  for (auto from = begin; from != end;) {
    const auto frame_at = [&](const Path& p) {
      return depth < p.frames.size() ? p.frames[depth] : UINT32_MAX;
    };
    const auto to =
        std::find_if(from, end, [&](const Path& p) { return frame_at(p) != frame_at(*from); });
    std::string label = so_far;
    // Where some paths end and all others go on together, these fork later.
    const bool all_others =
        from != begin && to == end && to - from > 1 && std::prev(from)->frames.size() <= depth;
    if (depth < from->frames.size() && !all_others) {
      if (!label.empty()) label += " > ";
      label += text.frame(from->frames[depth]);
    }
    if (to - from == 1 || depth >= from->frames.size() || forks == 1) {
      for (auto p = from; p != to; ++p) out[p->place] = label;
    } else {
      add_forks(text, from, to, depth + 1, forks - 1, label, out);
    }
    from = to;
  }
}

template <typename SumOf, typename NameOf, typename Rows>
void sort_by(Rows& rows, SortBy sort, const SumOf& sum, const NameOf& name) {
  switch (static_cast<StackColumn>(sort.column)) {
    case StackColumn::kSize:
    case StackColumn::kShare:
      sort_rows(rows, sort.descending, [&](const auto& r) { return sum(r).bytes; });
      break;
    case StackColumn::kCount:
      sort_rows(rows, sort.descending, [&](const auto& r) { return sum(r).count; });
      break;
    case StackColumn::kLargest:
      sort_rows(rows, sort.descending, [&](const auto& r) { return sum(r).largest; });
      break;
    case StackColumn::kWhere:
      sort_rows(rows, sort.descending, name);
      break;
  }
}

void add(StackRow& sum, const StackRow& row) {
  if (row.largest > sum.largest) sum.stack = row.stack;
  sum.bytes += row.bytes;
  sum.count += row.count;
  sum.largest = std::max(sum.largest, row.largest);
}

// The stacks of each line, in the order of the first of them.
std::vector<std::vector<StackRow>> stacks_by_line(const FrameText& text,
                                                  const std::vector<StackRow>& stacks) {
  std::vector<std::vector<StackRow>> lines;
  std::unordered_map<std::string_view, size_t> places;
  for (const StackRow& row : stacks) {
    const auto [place, added] = places.try_emplace(line_of(text, row), lines.size());
    if (added) lines.emplace_back();
    lines[place->second].push_back(row);
  }
  return lines;
}

StackRow sum_of(const std::vector<StackRow>& stacks) {
  StackRow sum = stacks.front();
  for (size_t i = 1; i < stacks.size(); ++i) add(sum, stacks[i]);
  return sum;
}

LineRow row_of_line(const FrameText& text, const std::vector<StackRow>& stacks) {
  LineRow row{sum_of(stacks),
              std::string(line_of(text, stacks.front())),
              {},
              static_cast<uint32_t>(stacks.size())};
  const auto head = [&](const StackRow& s) { return text.headline(s.stack, s.before_recording); };
  const bool same = std::all_of(stacks.begin(), stacks.end(),
                                [&](const StackRow& s) { return head(s) == head(stacks.front()); });
  row.text = same ? std::string(head(stacks.front())) : row.line;
  return row;
}

void add_stacks(const FrameText& text, const LineRow& line, std::vector<StackRow> stacks,
                SortBy sort, std::vector<LineRow>& out) {
  std::vector<uint32_t> ids;
  for (const StackRow& s : stacks) ids.push_back(s.stack);
  std::vector<std::string> labels = differences(text, ids);
  std::vector<LineRow> rows;
  for (size_t i = 0; i < stacks.size(); ++i) {
    std::string& label = labels[i];
    // The function in which it allocated says more than where its path forks.
    const std::string& head = text.headline(stacks[i].stack);
    if (head.starts_with(line.line) && head.size() > line.line.size()) {
      const std::string in = head.substr(head.find_first_not_of(' ', line.line.size()));
      label = label.empty() ? in : in + "   via " + label;
    } else {
      label = label.empty() ? "in the line itself" : "via " + label;
    }
    rows.push_back({stacks[i], line.line, std::move(label), 0});
  }
  sort_by(
      rows, sort, [](const LineRow& r) { return r.sum; }, [](const LineRow& r) { return r.text; });
  std::move(rows.begin(), rows.end(), std::back_inserter(out));
}

}  // namespace

std::string_view line_of(const FrameText& text, const StackRow& row) {
  if (row.stack == 0 && row.before_recording) return kBeforeRecordingText;
  return text.line(row.stack);
}

std::vector<std::string> differences(const FrameText& text, const std::vector<uint32_t>& stacks) {
  std::vector<std::string> out(stacks.size());
  if (stacks.size() < 2) return out;
  std::vector<Path> paths;
  for (size_t i = 0; i < stacks.size(); ++i) {
    Path path{text.names().frames_of(stacks[i]), i};
    std::reverse(path.frames.begin(), path.frames.end());
    paths.push_back(std::move(path));
  }
  std::sort(paths.begin(), paths.end(),
            [](const Path& a, const Path& b) { return a.frames < b.frames; });
  add_forks(text, paths.begin(), paths.end(), 0, kForks, {}, out);
  return out;
}

std::vector<StackRow> sums_by_line(const FrameText& text, const std::vector<StackRow>& stacks) {
  std::vector<StackRow> sums;
  for (const std::vector<StackRow>& line : stacks_by_line(text, stacks)) {
    sums.push_back(sum_of(line));
  }
  sort_rows(sums, true, [](const StackRow& row) { return row.bytes; });
  return sums;
}

std::vector<LineRow> line_rows(const TableSource& source, const std::string& filter, SortBy sort,
                               const std::set<std::string>& opened) {
  const FrameText& text = source.text;
  std::vector<std::vector<StackRow>> lines = stacks_by_line(text, stack_rows(source, filter));
  std::vector<std::pair<LineRow, size_t>> sums;  // with the place in `lines`
  for (size_t i = 0; i < lines.size(); ++i) sums.emplace_back(row_of_line(text, lines[i]), i);
  sort_by(
      sums, sort, [](const auto& r) { return r.first.sum; },
      [](const auto& r) { return r.first.text; });
  std::vector<LineRow> out;
  for (auto& [line, place] : sums) {
    out.push_back(line);
    if (line.stacks < 2 || !opened.contains(line.line)) continue;
    add_stacks(text, line, std::move(lines[place]), sort, out);
  }
  return out;
}

}  // namespace tidemark::view
