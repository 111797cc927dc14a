#include "analysis/plan/program/layers.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "analysis/insight/module_tree.h"

namespace tidemark {

namespace {

bool matches(std::string_view pattern, std::string_view path, std::string_view class_name) {
  if (pattern == path || (!class_name.empty() && pattern == class_name)) return true;
  if (!pattern.ends_with('*')) return false;
  pattern.remove_suffix(1);
  // One component: "layers.*" is every layer, not what is inside it.
  return path.starts_with(pattern) && path.find('.', pattern.size()) == path.npos;
}

std::string_view last_name(std::string_view prefix) {
  return prefix.substr(prefix.rfind('.') + 1);  // npos + 1 is 0
}

// The path of which `path` is a part, itself included; "" if there is none.
std::string within(const std::set<std::string>& layers, const std::string& path) {
  for (const std::string_view prefix : module_prefixes(path)) {
    const auto known = layers.find(std::string(prefix));
    if (known != layers.end()) return *known;
  }
  return {};
}

bool is_element(std::string_view prefix) {
  NumberedName name;
  return split_number(last_name(prefix), name) && name.stem.empty();
}

// Modules that contain nothing but elements, some of which contain others: "features.1" in
// "features.1.0.conv".
std::set<std::string> lists_of_layers(const std::set<std::string>& paths) {
  std::set<std::string> lists;
  std::set<std::string> others;
  for (const std::string& path : paths) {
    const std::vector<std::string_view> prefixes = module_prefixes(path);
    for (size_t i = 0; i + 1 < prefixes.size(); ++i) {
      if (!is_element(prefixes[i + 1])) {
        others.emplace(prefixes[i]);
      } else if (i + 2 < prefixes.size()) {
        lists.emplace(prefixes[i]);
      }
    }
  }
  std::erase_if(lists, [&](const std::string& list) { return others.contains(list); });
  return lists;
}

// Elements of lists ("layers.0") that contain others, the outermost of each path; of lists in lists
// the inner ones.
std::set<std::string> list_elements(const std::set<std::string>& paths) {
  const std::set<std::string> lists = lists_of_layers(paths);
  std::set<std::string> layers;
  for (const std::string& path : paths) {
    for (const std::string_view prefix : module_prefixes(path)) {
      if (prefix == path || !is_element(prefix) || lists.contains(std::string(prefix))) continue;
      layers.emplace(prefix);
      break;
    }
  }
  return layers;
}

// Modules that contain others and no list of layers, and have numbers in their names and a
// neighbour of the same name and class: "encoder_layer_0", "denseblock1".
std::set<std::string> numbered_modules(const RecordedProgram& program,
                                       const std::set<std::string>& paths,
                                       const std::set<std::string>& elements) {
  std::map<std::string, std::set<std::string>> alike;  // by name without number, and class
  for (const std::string& path : paths) {
    if (!within(elements, path).empty()) continue;
    for (const std::string_view prefix : module_prefixes(path)) {
      NumberedName name;
      if (prefix == path || !split_number(last_name(prefix), name) || name.stem.empty()) continue;
      const auto inside = elements.lower_bound(std::string(prefix) + ".");
      if (inside != elements.end() && inside->starts_with(std::string(prefix) + ".")) continue;
      const std::string_view stem = prefix.substr(
          0, static_cast<size_t>(name.stem.data() + name.stem.size() - prefix.data()));
      alike[std::string(stem) + " " + std::string(program.module_class(std::string(prefix)))]
          .emplace(prefix);
    }
  }
  std::set<std::string> layers;
  for (const auto& [name, found] : alike) {
    if (found.size() > 1) layers.insert(found.begin(), found.end());
  }
  return layers;
}

std::set<std::string> repeated_layers(const RecordedProgram& program,
                                      const std::set<std::string>& paths) {
  std::set<std::string> layers = list_elements(paths);
  layers.merge(numbered_modules(program, paths, layers));
  return layers;
}

std::set<std::string> chosen_layers(const RecordedProgram& program,
                                    const std::set<std::string>& paths,
                                    const std::vector<std::string>& chosen) {
  std::set<std::string> layers;
  // A module whose parts allocate may allocate nothing itself.
  std::set<std::string> all = paths;
  for (const std::string& path : paths) {
    for (const std::string_view prefix : module_prefixes(path)) all.emplace(prefix);
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
      chosen.empty() ? repeated_layers(program, paths) : chosen_layers(program, paths, chosen);
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
