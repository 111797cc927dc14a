#include "analysis/insight/module_tree.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <queue>

namespace tidemark {

namespace {

uint64_t total(const ModuleAmounts& amounts) {
  return std::accumulate(amounts.begin(), amounts.end(), uint64_t{0});
}

struct Node {
  std::string name;
  std::string class_name;
  std::vector<std::string> modules;
  ModuleAmounts own{};
  ModuleAmounts all{};
  std::map<std::string, Node> parts;  // by name
  std::vector<Node> children;         // what becomes of the parts
};

void add(ModuleAmounts& to, const ModuleAmounts& amounts) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += amounts[i];
}

void insert(Node& root, const ModulePart& part) {
  Node* node = &root;
  for (const std::string_view prefix : module_prefixes(part.path)) {
    const std::string name(prefix.substr(node == &root ? 0 : node->modules.front().size() + 1));
    Node& next = node->parts[name];
    if (next.modules.empty()) {
      next.name = name;
      next.modules = {std::string(prefix)};
    }
    add(next.all, part.amounts);
    node = &next;
  }
  add(node->own, part.amounts);
  node->class_name = part.class_name;
}

void name_class(Node& root, const ModulePart& part) {
  Node* node = &root;
  for (const std::string_view prefix : module_prefixes(part.path)) {
    const size_t begin = node == &root ? 0 : node->modules.front().size() + 1;
    const auto next = node->parts.find(std::string(prefix.substr(begin)));
    if (next == node->parts.end()) return;
    node = &next->second;
  }
  node->class_name = part.class_name;
}

void merge(Node& to, Node&& from) {
  add(to.own, from.own);
  add(to.all, from.all);
  std::move(from.modules.begin(), from.modules.end(), std::back_inserter(to.modules));
  for (auto& [name, part] : from.parts) {
    const auto known = to.parts.find(name);
    known == to.parts.end() ? void(to.parts.emplace(name, std::move(part)))
                            : merge(known->second, std::move(part));
  }
}

class Fold {
 public:
  explicit Fold(ModulesAlike& alike) : alike_(alike) {}

  void parts_of(Node& node) {
    std::map<std::string_view, std::multimap<uint64_t, Node*>> numbered;  // by stem
    std::vector<std::pair<uint64_t, std::vector<Node>>> groups;           // by what they hold
    for (auto& [name, part] : node.parts) {
      NumberedName split;
      if (split_number(name, split)) {
        numbered[split.stem].emplace(split.number, &part);
      } else {
        groups.emplace_back(total(part.all), std::vector<Node>{});
        groups.back().second.push_back(std::move(part));
      }
    }
    for (auto& [stem, parts] : numbered) groups.push_back(runs_of(stem, parts));
    std::stable_sort(groups.begin(), groups.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (auto& [bytes, group] : groups) {
      for (Node& child : group) {
        parts_of(child);
        node.children.push_back(std::move(child));
      }
    }
    node.parts.clear();
    share_row(node);
  }

 private:
  std::pair<uint64_t, std::vector<Node>> runs_of(std::string_view stem,
                                                 std::multimap<uint64_t, Node*>& parts) const {
    uint64_t bytes = 0;
    std::vector<Node> runs;
    std::string first;  // name
    uint64_t last = 0;
    ModuleAmounts one{};  // of the first of the run
    for (auto& [number, part] : parts) {
      bytes += total(part->all);
      if (!runs.empty() && number == last + 1 && part->class_name == runs.back().class_name &&
          alike_(one, part->all)) {
        runs.back().name = first + "-" + part->name.substr(stem.size());
        merge(runs.back(), std::move(*part));
      } else {
        one = part->all;
        first = part->name;
        runs.push_back(std::move(*part));
      }
      last = number;
    }
    return {bytes, std::move(runs)};
  }

  static void share_row(Node& node) {
    if (node.name.empty() || node.children.size() != 1 || total(node.own) != 0) return;
    Node child = std::move(node.children.front());
    child.name = node.name + "." + child.name;
    node = std::move(child);
  }

  ModulesAlike& alike_;
};

void list(Node& node, const std::string& prefix, uint32_t depth, std::vector<ModuleRow>& rows) {
  for (Node& child : node.children) {
    const size_t at = rows.size();
    std::string path = prefix + child.name;
    rows.push_back({path, child.class_name, std::move(child.modules), depth, 0, child.all});
    list(child, path + ".", depth + 1, rows);
    rows[at].end = rows.size();
  }
}

}  // namespace

std::vector<std::string_view> module_prefixes(std::string_view path) {
  constexpr size_t kDeepest = 64;
  std::vector<std::string_view> prefixes;
  size_t end = 0;
  while (prefixes.size() < kDeepest && (end = path.find('.', end)) != path.npos) {
    prefixes.push_back(path.substr(0, end++));
  }
  prefixes.push_back(path);
  return prefixes;
}

bool split_number(std::string_view name, NumberedName& out) {
  constexpr size_t kDigits = 9;
  const size_t digits = name.size() - (name.find_last_not_of("0123456789") + 1);  // npos + 1 is 0
  if (digits == 0 || digits > kDigits) return false;
  out.stem = name.substr(0, name.size() - digits);
  out.number = 0;
  for (const char c : name.substr(out.stem.size())) {
    out.number = out.number * 10 + static_cast<uint64_t>(c - '0');
  }
  return true;
}

bool about_equal(const ModuleAmounts& a, const ModuleAmounts& b) {
  const uint64_t most = std::max(total(a), total(b));
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::max(a[i], b[i]) - std::min(a[i], b[i]) > most / 20) return false;
  }
  return true;
}

std::vector<ModuleRow> module_tree(std::span<const ModulePart> parts, ModulesAlike& alike) {
  Node root;
  for (const ModulePart& part : parts) {
    if (total(part.amounts) != 0) insert(root, part);
  }
  for (const ModulePart& part : parts) {
    if (total(part.amounts) == 0) name_class(root, part);
  }
  Fold(alike).parts_of(root);
  std::vector<ModuleRow> rows;
  list(root, "", 0, rows);
  return rows;
}

std::vector<size_t> main_rows(std::span<const ModuleRow> rows, std::span<const uint64_t> weights,
                              uint64_t whole, size_t most) {
  const auto inside = [&](size_t first, size_t end) {
    std::vector<size_t> found;
    for (size_t i = first; i < end; i = rows[i].end) {
      if (weights[i] != 0 && weights[i] >= whole / 200) found.push_back(i);
    }
    return found;
  };
  const auto lighter = [&](size_t a, size_t b) {
    return weights[a] != weights[b] ? weights[a] < weights[b] : a > b;
  };
  std::vector<size_t> shown = inside(0, rows.size());
  if (shown.size() > most) {
    std::stable_sort(shown.begin(), shown.end(), [&](size_t a, size_t b) { return lighter(b, a); });
    shown.resize(most);
  }
  std::priority_queue<size_t, std::vector<size_t>, decltype(lighter)> closed(lighter, shown);
  while (!closed.empty()) {
    const size_t row = closed.top();
    closed.pop();
    const std::vector<size_t> parts = inside(row + 1, rows[row].end);
    if (shown.size() + parts.size() > most) continue;
    for (const size_t part : parts) {
      shown.push_back(part);
      closed.push(part);
    }
  }
  std::sort(shown.begin(), shown.end());
  return shown;
}

std::string_view name_in_parent(std::span<const ModuleRow> rows, size_t row) {
  const std::string_view path = rows[row].path;
  for (size_t i = row; i-- > 0;) {
    if (rows[i].depth < rows[row].depth) return path.substr(rows[i].path.size() + 1);
  }
  return path;
}

}  // namespace tidemark
