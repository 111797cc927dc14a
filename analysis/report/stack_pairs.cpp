#include "analysis/report/stack_pairs.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>

namespace tidemark {

namespace {

using Lines = std::vector<int64_t>;

struct Sums {
  uint64_t before = 0;
  uint64_t after = 0;
  const std::vector<std::string>* before_frames = nullptr;  // null: that run does not have it
  const std::vector<std::string>* after_frames = nullptr;
};

// Splits "function file:line" before the colon. Line 0: there is none.
std::pair<std::string_view, int64_t> without_line(std::string_view frame) {
  const size_t colon = frame.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == frame.size()) return {frame, 0};
  int64_t line = 0;
  const auto [end, error] =
      std::from_chars(frame.data() + colon + 1, frame.data() + frame.size(), line);
  if (error != std::errc() || end != frame.data() + frame.size()) return {frame, 0};
  return {frame.substr(0, colon), line};
}

uint64_t distance(const Lines& a, const Lines& b) {
  uint64_t sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const uint64_t apart = a[i] > b[i] ? static_cast<uint64_t>(a[i]) - static_cast<uint64_t>(b[i])
                                       : static_cast<uint64_t>(b[i]) - static_cast<uint64_t>(a[i]);
    sum += std::min<uint64_t>(apart, UINT32_MAX);
  }
  return sum;
}

// The stacks with the same functions and files, by their lines.
using Group = std::map<Lines, Sums>;

// Moves the sums of stacks that only one run has (`gone`) to the nearest that only the other has.
void join_nearest(Group& group, std::vector<Group::iterator>& gone,
                  const std::vector<Group::iterator>& fresh) {
  constexpr size_t kMostCompared = size_t{1} << 16;  // pairs: beyond that in order of their lines
  if (gone.empty() || fresh.empty()) return;
  std::vector<std::pair<size_t, size_t>> order;  // indices of gone and fresh, nearest first
  // As many on each side: an edit moved all of them.
  if (gone.size() == fresh.size() || gone.size() * fresh.size() > kMostCompared) {
    for (size_t i = 0; i < std::min(gone.size(), fresh.size()); ++i) order.emplace_back(i, i);
  } else {
    for (size_t g = 0; g < gone.size(); ++g) {
      for (size_t f = 0; f < fresh.size(); ++f) order.emplace_back(g, f);
    }
    std::vector<uint64_t> apart(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      apart[i] = distance(gone[order[i].first]->first, fresh[order[i].second]->first);
    }
    std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
      return apart[a.first * fresh.size() + a.second] < apart[b.first * fresh.size() + b.second];
    });
  }
  std::vector<bool> joined(fresh.size(), false);
  for (const auto& [g, f] : order) {
    if (gone[g] == group.end() || joined[f]) continue;
    fresh[f]->second.before = gone[g]->second.before;
    fresh[f]->second.before_frames = gone[g]->second.before_frames;
    joined[f] = true;
    group.erase(gone[g]);
    gone[g] = group.end();
  }
}

// An edit keeps the order of lines: a line that moved did not pass one that both runs have.
void join_moved(Group& group) {
  std::vector<Group::iterator> gone;
  std::vector<Group::iterator> fresh;
  for (auto it = group.begin(); it != group.end(); ++it) {
    if (it->second.before_frames != nullptr && it->second.after_frames != nullptr) {
      join_nearest(group, gone, fresh);
      gone.clear();
      fresh.clear();
    } else {
      (it->second.before_frames != nullptr ? gone : fresh).push_back(it);
    }
  }
  join_nearest(group, gone, fresh);
}

}  // namespace

std::vector<RenamedFile> StackPairs::renamed() const {
  FileFunctions before;
  FileFunctions after;
  for (const Entry& entry : entries_) {
    for (const std::string& frame : entry.frames) {
      const auto [function, file] = function_and_file(frame);
      if (!file.empty()) (entry.after ? after : before)[file].insert(function);
    }
  }
  return renamed_files(before, after);
}

std::vector<PairedStack> StackPairs::pair() const {
  std::map<std::string, std::string, std::less<>> names;  // of files, before -> after
  for (RenamedFile& file : renamed()) names[std::move(file.before)] = std::move(file.after);
  std::map<std::string, Group> groups;
  for (const Entry& entry : entries_) {
    std::string key;
    Lines lines;
    for (const std::string& frame : entry.frames) {
      const auto [text, line] = without_line(frame);
      const std::string_view file = function_and_file(frame).second;
      const auto renamed = entry.after ? names.end() : names.find(file);
      if (renamed == names.end()) {
        key.append(text);
      } else {
        key.append(text.substr(0, text.size() - file.size())).append(renamed->second);
      }
      key.push_back('\n');
      lines.push_back(line);
    }
    Sums& sums = groups[std::move(key)][std::move(lines)];
    (entry.after ? sums.after : sums.before) += entry.bytes;
    (entry.after ? sums.after_frames : sums.before_frames) = &entry.frames;
  }
  std::vector<PairedStack> pairs;
  for (auto& [key, group] : groups) {
    join_moved(group);
    for (const auto& [lines, sums] : group) {
      const auto* const before = sums.before_frames;
      const auto* const after = sums.after_frames;
      PairedStack pair{after != nullptr ? *after : *before, {}, sums.before, sums.after};
      if (before != nullptr && *before != pair.frames) pair.before_frames = *before;
      pairs.push_back(std::move(pair));
    }
  }
  return pairs;
}

}  // namespace tidemark
