#include "analysis/plan/layers.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

namespace tidemark {

namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// The shortest prefixes that end in a number, longer ones after them.
std::vector<std::string> numbered_prefixes(const std::string& path) {
  std::vector<std::string> all;
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('.', begin), path.size());
    if (is_number(std::string_view(path).substr(begin, end - begin))) {
      all.push_back(path.substr(0, end));
    }
    begin = end + 1;
  }
  return all;
}

bool matches(std::string_view pattern, std::string_view path, std::string_view class_name) {
  if (pattern == path || (!class_name.empty() && pattern == class_name)) return true;
  if (!pattern.ends_with('*')) return false;
  pattern.remove_suffix(1);
  // One component: "layers.*" is every layer, not what is inside it.
  return path.starts_with(pattern) && path.find('.', pattern.size()) == path.npos;
}

// The path of which `path` is a part, itself included; "" if there is none.
std::string within(const std::set<std::string>& layers, const std::string& path) {
  for (size_t end = path.find('.');; end = path.find('.', end + 1)) {
    const std::string prefix = path.substr(0, end);
    if (layers.contains(prefix)) return prefix;
    if (end == path.npos) return {};
  }
}

std::set<std::string> repeated_layers(const std::set<std::string>& paths) {
  std::set<std::string> layers;
  for (const std::string& path : paths) {
    for (const std::string& prefix : numbered_prefixes(path)) {
      if (prefix == path) continue;  // contains nothing that runs
      layers.insert(prefix);
      break;
    }
  }
  return layers;
}

std::set<std::string> chosen_layers(const RecordedProgram& program,
                                    const std::set<std::string>& paths,
                                    const std::vector<std::string>& chosen) {
  std::set<std::string> layers;
  // A module whose parts allocate may allocate nothing itself.
  std::set<std::string> all = paths;
  for (const std::string& path : paths) {
    for (size_t dot = path.find('.'); dot != path.npos; dot = path.find('.', dot + 1)) {
      all.insert(path.substr(0, dot));
    }
  }
  for (const std::string& path : all) {
    for (const std::string& pattern : chosen) {
      if (matches(pattern, path, program.module_class(path))) layers.insert(path);
    }
  }
  return layers;
}

}  // namespace

Layers::Layers(const RecordedProgram& program, const std::vector<std::string>& chosen)
    : of_row_(program.rows(), kNoLayer) {
  std::set<std::string> paths;
  for (size_t i = 0; i < program.rows(); ++i) {
    if (!program.module_path(i).empty()) paths.insert(program.module_path(i));
  }
  const std::set<std::string> layers =
      chosen.empty() ? repeated_layers(paths) : chosen_layers(program, paths, chosen);
  std::map<std::string, uint32_t> number;
  for (const std::string& path : paths) {
    const std::string layer = within(layers, path);
    if (layer.empty()) continue;
    if (number.try_emplace(layer, static_cast<uint32_t>(paths_.size())).second) {
      paths_.push_back(layer);
    }
  }
  for (size_t i = 0; i < program.rows(); ++i) {
    const std::string& path = program.module_path(i);
    if (path.empty()) continue;
    const auto at = number.find(within(layers, path));
    if (at != number.end()) of_row_[i] = at->second;
  }
}

}  // namespace tidemark
