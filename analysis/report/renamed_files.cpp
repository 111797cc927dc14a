#include "analysis/report/renamed_files.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace tidemark {

namespace {

std::string_view without_folder(std::string_view file) {
  return file.substr(file.rfind('/') + 1);
}

// Names that say nothing about the program: <module>, main, __init__.
bool is_telling(std::string_view function) {
  return !function.starts_with('<') && !function.starts_with("__") && function != "main";
}

// "train_v1.py" and "train_v2.py": they begin alike for half of the longer name, without ".py".
bool similar_names(std::string_view a, std::string_view b) {
  a.remove_suffix(3);
  b.remove_suffix(3);
  const auto alike =
      static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  return alike >= 3 && alike * 2 >= std::max(a.size(), b.size());
}

struct Candidate {
  FileFunctions::const_iterator before;
  FileFunctions::const_iterator after;
  bool same_name = false;
  size_t shared = 0;  // functions

  auto order() const { return std::tuple(same_name, shared); }
};

// Whether it is one: the files are taken for the same.
bool is_renamed(Candidate& c) {
  const auto& old = c.before->second;
  const auto& now = c.after->second;
  std::vector<std::string_view> shared;
  std::set_intersection(old.begin(), old.end(), now.begin(), now.end(), std::back_inserter(shared));
  c.shared = shared.size();
  if (c.shared * 2 <= std::max(old.size(), now.size())) return false;
  const std::string_view name = without_folder(c.before->first);
  const std::string_view other = without_folder(c.after->first);
  c.same_name = name == other;
  return c.same_name || similar_names(name, other) ||
         std::count_if(shared.begin(), shared.end(), is_telling) >= 3;
}

std::vector<FileFunctions::const_iterator> missing_in(const FileFunctions& other,
                                                      const FileFunctions& files) {
  std::vector<FileFunctions::const_iterator> missing;
  for (auto it = files.begin(); it != files.end(); ++it) {
    if (!other.contains(it->first)) missing.push_back(it);
  }
  return missing;
}

}  // namespace

std::string RenamedFile::text() const {
  std::string_view now = without_folder(after);
  std::string_view old = without_folder(before);
  if (now == old) {
    now = after;
    old = before;
  }
  return std::string(now) + " is compared with " + std::string(old);
}

std::pair<std::string_view, std::string_view> function_and_file(std::string_view frame) {
  const size_t end = frame.rfind(".py:");
  if (end == std::string_view::npos) return {};
  frame = frame.substr(0, end + 3);
  const size_t space = frame.rfind(' ');
  if (space == std::string_view::npos) return {};
  const size_t last = frame.find_last_not_of(' ', space);
  return {last == std::string_view::npos ? "" : frame.substr(0, last + 1), frame.substr(space + 1)};
}

std::string_view with_last_name(std::string_view frame) {
  const size_t dot = function_and_file(frame).first.rfind('.');
  return dot == std::string_view::npos ? frame : frame.substr(dot + 1);
}

bool is_same_function(std::string_view one, std::string_view other) {
  if (one.size() < other.size()) std::swap(one, other);
  if (one == other) return true;
  return other.find('.') == other.npos && one.ends_with(other) &&
         one[one.size() - other.size() - 1] == '.';
}

std::vector<RenamedFile> renamed_files(const FileFunctions& before, const FileFunctions& after) {
  constexpr size_t kMostCompared = size_t{1} << 20;  // pairs
  const auto gone = missing_in(after, before);
  const auto fresh = missing_in(before, after);
  if (gone.empty() || fresh.empty() || gone.size() > kMostCompared / fresh.size()) return {};
  std::vector<Candidate> candidates;
  for (const auto old : gone) {
    for (const auto now : fresh) {
      Candidate c{old, now};
      if (is_renamed(c)) candidates.push_back(c);
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.order() > b.order(); });
  std::set<std::string_view> taken_before;
  std::set<std::string_view> taken_after;
  std::vector<RenamedFile> renamed;
  for (const Candidate& c : candidates) {
    if (taken_before.contains(c.before->first) || taken_after.contains(c.after->first)) continue;
    taken_before.insert(c.before->first);
    taken_after.insert(c.after->first);
    renamed.push_back({std::string(c.before->first), std::string(c.after->first)});
  }
  return renamed;
}

}  // namespace tidemark
