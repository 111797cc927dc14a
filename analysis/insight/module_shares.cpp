#include "analysis/insight/module_shares.h"

#include <algorithm>
#include <map>

namespace tidemark {

namespace {

ModuleUse use_of(Category category) {
  switch (category) {
    case Category::kParameter:
      return ModuleUse::kParameter;
    case Category::kGradient:
      return ModuleUse::kGradient;
    case Category::kOptimizerState:
      return ModuleUse::kOptimizer;
    case Category::kActivation:
      return ModuleUse::kKept;
    default:
      return ModuleUse::kTransient;
  }
}

uint64_t& part_of(ModuleShare& share, ModuleUse use) {
  switch (use) {
    case ModuleUse::kParameter:
      return share.parameter_bytes;
    case ModuleUse::kGradient:
      return share.gradient_bytes;
    case ModuleUse::kOptimizer:
      return share.optimizer_bytes;
    case ModuleUse::kKept:
      return share.kept_bytes;
    case ModuleUse::kTransient:
      break;
  }
  return share.transient_bytes;
}

// What is live of every path and all inside it, and the most there ever was.
class PathLevels {
 public:
  uint32_t place(std::string_view path) {
    uint32_t outer = kNone;
    for (const std::string_view prefix : module_prefixes(path)) {
      const auto [known, fresh] =
          numbers_.try_emplace(std::string(prefix), static_cast<uint32_t>(levels_.size()));
      if (fresh) levels_.push_back({outer});
      outer = known->second;
    }
    return outer;
  }
  void add(uint32_t place, uint64_t bytes) {
    for (; place != kNone; place = levels_[place].outer) {
      Level& level = levels_[place];
      level.now += bytes;
      level.most = std::max(level.most, level.now);
    }
  }
  void remove(uint32_t place, uint64_t bytes) {
    for (; place != kNone; place = levels_[place].outer) levels_[place].now -= bytes;
  }
  uint64_t most(const std::string& path) const {
    const auto known = numbers_.find(path);
    return known == numbers_.end() ? 0 : levels_[known->second].most;
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Level {
    uint32_t outer = kNone;
    uint64_t now = 0;
    uint64_t most = 0;
  };
  std::map<std::string, uint32_t> numbers_;
  std::vector<Level> levels_;
};

// A library allocates its workspace for whoever needs it first, and uses it for all.
uint32_t module_of(const ProcessModel& process, const Allocation& a, Category category) {
  return category == Category::kWorkspace ? 0 : process.nn_module_of(a);
}

PathLevels transient_levels(const ProcessModel& process, const AllocationHistory& model,
                            std::span<const Category> categories) {
  PathLevels levels;
  std::map<uint32_t, uint32_t> places;  // by nn.Module
  std::vector<uint32_t> place_of(model.allocations.size(), UINT32_MAX);
  for (uint32_t event = 0; event < model.event_count(); ++event) {
    model.passed(event);
    const uint32_t i = model.subject[event];
    if (model.change[event] == Change::kBirth) {
      const Category category = categories.empty() ? model.allocations.category(i) : categories[i];
      if (use_of(category) != ModuleUse::kTransient) continue;
      const Allocation a = model.allocations[i];
      const uint32_t id = module_of(process, a, category);
      const auto [at, fresh] = places.try_emplace(id);
      if (fresh) at->second = levels.place(process.names.nn_module_text(id));
      place_of[i] = at->second;
      levels.add(at->second, a.block_bytes);
    } else if (model.change[event] == Change::kRelease && place_of[i] != UINT32_MAX) {
      levels.remove(place_of[i], model.allocations.block_bytes(i));
    }
  }
  return levels;
}

}  // namespace

std::vector<ModuleShare> shares_by_module(const ProcessModel& process,
                                          const AllocationHistory& model, const MemoryState& state,
                                          std::span<const Category> categories) {
  std::vector<ModuleShare> shares;
  if (process.names.nn_module_count() == 0) return shares;
  // An nn.Module that was created again has another id and the same path.
  std::map<std::string, ModuleShare> by_path;
  std::map<uint32_t, ModuleShare*> by_id;
  for (const uint32_t i : state.live) {
    if (state.is_pending(model, i)) continue;
    const Allocation a = model.allocations[i];
    const Category category = categories.empty() ? a.category : categories[i];
    const auto [known, fresh] = by_id.try_emplace(module_of(process, a, category));
    if (fresh) {
      const std::string path = process.names.nn_module_text(known->first);
      known->second = &by_path[path];
      known->second->module = path;
      known->second->class_name =
          process.names.string(process.names.nn_module(known->first).class_name);
    }
    ModuleShare& share = *known->second;
    share.bytes += a.block_bytes;
    ++share.count;
    part_of(share, use_of(category)) += a.block_bytes;
  }
  for (auto& [path, share] : by_path) shares.push_back(std::move(share));
  std::stable_sort(shares.begin(), shares.end(),
                   [](const ModuleShare& a, const ModuleShare& b) { return a.bytes > b.bytes; });
  return shares;
}

std::vector<ModuleRow> layers_of(std::span<const ModuleShare> shares, const ProcessModel& process) {
  if (shares.empty()) return {};
  std::vector<ModulePart> parts;
  for (const ModuleShare& share : shares) {
    parts.push_back({share.module,
                     share.class_name,
                     {share.parameter_bytes, share.gradient_bytes, share.optimizer_bytes,
                      share.kept_bytes, share.transient_bytes}});
  }
  // Containers hold nothing, but have a class.
  for (uint32_t id = 1; id < process.names.nn_module_count(); ++id) {
    const NnModule& m = process.names.nn_module(id);
    parts.push_back(
        {process.names.nn_module_text(id), std::string(process.names.string(m.class_name)), {}});
  }
  return module_tree(parts);
}

std::vector<ModuleRow> layers_of(std::span<const ModuleShare> shares, const ProcessModel& process,
                                 const AllocationHistory& model,
                                 std::span<const Category> categories) {
  std::vector<ModuleRow> rows = layers_of(shares, process);
  if (rows.empty()) return rows;
  const PathLevels levels = transient_levels(process, model, categories);
  for (ModuleRow& row : rows) {
    for (const std::string& path : row.modules) row.peak = std::max(row.peak, levels.most(path));
  }
  return rows;
}

}  // namespace tidemark
