#include "analysis/report/stack_pairs.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "analysis/names/stack_lines.h"

namespace tidemark {

namespace {

using Lines = std::vector<int64_t>;
using Frames = std::vector<std::string>;

struct Sums {
  uint64_t before = 0;
  uint64_t after = 0;
  const Frames* before_frames = nullptr;  // null: that run does not have it
  const Frames* after_frames = nullptr;
  bool settled = false;  // both runs have stacks with these lines: it does not move elsewhere

  bool in_both() const { return before_frames != nullptr && after_frames != nullptr; }
  bool stays() const { return settled || in_both(); }
  void add(const Sums& other) {
    before += other.before;
    after += other.after;
    if (before_frames == nullptr) before_frames = other.before_frames;
    if (after_frames == nullptr) after_frames = other.after_frames;
  }
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
    if (it->second.stays()) {
      join_nearest(group, gone, fresh);
      gone.clear();
      fresh.clear();
    } else {
      (it->second.before_frames != nullptr ? gone : fresh).push_back(it);
    }
  }
  join_nearest(group, gone, fresh);
}

// How alike two stacks must be. What is left over is tried again with the next one.
enum class Likeness {
  kAllFrames,     // functions and files of all frames
  kPythonFrames,  // of Python's frames, and the operation: the native frames between may differ;
                  // the operation not if only one run has native frames
  kCommonFiles,   // of Python's frames in files that both runs have: another program calls them
  kFunctions,     // the user's line, what it calls and its callers, which may be in other files
};

using FileNames = std::map<std::string, std::string, std::less<>>;  // before -> after

class KeyMaker {
 public:
  KeyMaker(const std::vector<RenamedFile>& renamed, const FileFunctions& before,
           const FileFunctions& after, bool by_last_names, bool by_operations)
      : by_last_names_(by_last_names), by_operations_(by_operations) {
    for (const RenamedFile& file : renamed) {
      names_[file.before] = file.after;
      common_.insert({file.before, file.after});
    }
    for (const auto& [file, functions] : before) {
      if (after.contains(file)) common_.emplace(file);
    }
  }

  std::pair<std::string, Lines> key(const Frames& frames, bool after, Likeness likeness) const {
    std::pair<std::string, Lines> key;
    // Without a line of Python, only the same frames are alike, or the same node of a backward pass
    // if only one run has native frames.
    if (std::none_of(frames.begin(), frames.end(), is_python_line)) {
      const std::string node = by_operations_ ? "" : headline_of(frames);
      if (likeness != Likeness::kAllFrames && is_node(node)) return {node, {}};
      likeness = Likeness::kAllFrames;
    }
    if (likeness == Likeness::kCommonFiles && !is_common(headline_of(frames))) {
      likeness = Likeness::kAllFrames;
    }
    if (likeness == Likeness::kFunctions) {
      add(headline_of(frames), after, key);
      for (const std::string& frame : frames) {
        if (is_python_line(frame)) key.first.append(function_and_file(named(frame)).first) += '\n';
      }
    } else {
      for (const std::string& frame : frames) {
        const bool counts =
            likeness == Likeness::kAllFrames ||
            (is_python_line(frame) && (likeness != Likeness::kCommonFiles || is_common(frame)));
        if (counts) add(frame, after, key);
      }
    }
    if (likeness != Likeness::kAllFrames && by_operations_) {
      const std::string inner = inner_line_of(frames);
      key.first += without_line(named(inner)).first;
    }
    return key;
  }

  bool read_alike(const Frames& a, const Frames& b) const {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](const auto& x, const auto& y) { return named(x) == named(y); });
  }

 private:
  std::string_view named(std::string_view frame) const {
    return by_last_names_ ? with_last_name(frame) : frame;
  }

  // "AddmmBackward0": of autograd's graph, which native frames name as well.
  static bool is_node(std::string_view headline) {
    return headline.find("Backward") != headline.npos && headline.find(' ') == headline.npos;
  }

  bool is_common(std::string_view frame) const {
    return common_.contains(function_and_file(frame).second);
  }

  void add(std::string_view frame, bool after, std::pair<std::string, Lines>& key) const {
    const auto [text, line] = without_line(named(frame));
    const std::string_view file = function_and_file(frame).second;
    const auto renamed = after ? names_.end() : names_.find(file);
    if (renamed == names_.end()) {
      key.first.append(text);
    } else {
      key.first.append(text.substr(0, text.size() - file.size())).append(renamed->second);
    }
    key.first.push_back('\n');
    key.second.push_back(line);
  }

  FileNames names_;
  std::set<std::string, std::less<>> common_;
  bool by_last_names_;
  bool by_operations_;
};

// The stacks of both runs, paired by one likeness after the other.
class Pairing {
 public:
  Pairing(const KeyMaker& keys, std::vector<Sums> stacks) : keys_(keys), open_(std::move(stacks)) {}

  void pair_by(Likeness likeness) {
    if (!has_open(&Sums::before_frames) || !has_open(&Sums::after_frames)) return;
    std::map<std::string, Group> groups;
    std::map<std::pair<std::string, Lines>, Lines> moved;  // where the pairs went
    for (const Sums& s : done_) {
      if (s.in_both()) settle(s, likeness, groups, moved);
    }
    Parts parts;
    for (const Sums& s : open_) place(s, likeness, groups, moved, parts);
    open_.clear();
    for (auto& [key, group] : groups) {
      join_moved(group);
      for (const auto& [lines, sums] : group) {
        if (sums.in_both()) {
          done_.push_back(sums);
          continue;
        }
        // Nothing is like them, so they stay apart.
        std::vector<Sums>& left = parts[{key, lines}];
        std::vector<Sums>& to = sums.settled ? done_ : open_;
        to.insert(to.end(), left.begin(), left.end());
      }
    }
  }

  std::vector<Sums> all() && {
    done_.insert(done_.end(), open_.begin(), open_.end());
    return std::move(done_);
  }

 private:
  using Moves = std::map<std::pair<std::string, Lines>, Lines>;
  using Parts = std::map<std::pair<std::string, Lines>, std::vector<Sums>>;

  bool has_open(const Frames* Sums::*frames) const {
    return std::any_of(open_.begin(), open_.end(),
                       [&](const Sums& s) { return s.*frames != nullptr; });
  }

  void settle(const Sums& s, Likeness likeness, std::map<std::string, Group>& groups,
              Moves& moved) const {
    const auto now = keys_.key(*s.after_frames, true, likeness);
    groups[now.first][now.second].settled = true;
    auto old = keys_.key(*s.before_frames, false, likeness);
    if (old.first == now.first) moved.try_emplace(std::move(old), now.second);
  }

  void place(const Sums& s, Likeness likeness, std::map<std::string, Group>& groups,
             const Moves& moved, Parts& parts) const {
    const bool after = s.after_frames != nullptr;
    auto key = keys_.key(after ? *s.after_frames : *s.before_frames, after, likeness);
    if (const auto to = moved.find(key); !after && to != moved.end()) key.second = to->second;
    groups[key.first][key.second].add(s);
    parts[std::move(key)].push_back(s);
  }

  const KeyMaker& keys_;
  std::vector<Sums> open_;  // only one of the runs has them, so far
  std::vector<Sums> done_;
};

}  // namespace

template <typename IsOne>
bool StackPairs::only_one_has(IsOne&& is_one) const {
  const auto has = [&](bool after) {
    return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return entry.after == after && std::any_of(entry.frames.begin(), entry.frames.end(), is_one);
    });
  };
  return has(false) != has(true);
}

bool StackPairs::by_last_names() const {
  return only_one_has([](const std::string& frame) {
    return function_and_file(frame).first.find('.') != std::string_view::npos;
  });
}

bool StackPairs::by_operations() const {
  return !only_one_has(
      [](const std::string& frame) { return frame.find("at::_ops::") != std::string::npos; });
}

FileFunctions StackPairs::files(bool after, bool by_last_names) const {
  FileFunctions files;
  for (const Entry& entry : entries_) {
    if (entry.after != after) continue;
    for (const std::string& frame : entry.frames) {
      const auto [function, file] =
          function_and_file(by_last_names ? with_last_name(frame) : std::string_view(frame));
      if (!file.empty()) files[file].insert(function);
    }
  }
  return files;
}

std::vector<RenamedFile> StackPairs::renamed() const {
  const bool by_last = by_last_names();
  return renamed_files(files(false, by_last), files(true, by_last));
}

std::vector<PairedStack> StackPairs::pair() const {
  std::vector<Sums> stacks;
  for (const Entry& entry : entries_) {
    Sums& sums = stacks.emplace_back();
    (entry.after ? sums.after : sums.before) = entry.bytes;
    (entry.after ? sums.after_frames : sums.before_frames) = &entry.frames;
  }
  const bool by_last = by_last_names();
  const FileFunctions old_files = files(false, by_last);
  const FileFunctions new_files = files(true, by_last);
  const KeyMaker keys(renamed_files(old_files, new_files), old_files, new_files, by_last,
                      by_operations());
  Pairing pairing(keys, std::move(stacks));
  for (const Likeness likeness : {Likeness::kAllFrames, Likeness::kPythonFrames,
                                  Likeness::kCommonFiles, Likeness::kFunctions}) {
    pairing.pair_by(likeness);
  }
  std::vector<PairedStack> pairs;
  for (const Sums& sums : std::move(pairing).all()) {
    const Frames* const before = sums.before_frames;
    const Frames* const after = sums.after_frames;
    PairedStack pair{after != nullptr ? *after : *before, {}, sums.before, sums.after};
    if (before != nullptr && !keys.read_alike(*before, pair.frames)) pair.before_frames = *before;
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

}  // namespace tidemark
