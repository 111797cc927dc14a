#include "analysis/insight/module_shares.h"

#include <algorithm>
#include <map>

namespace tidemark {

namespace {

uint64_t& part_of(ModuleShare& share, Category category) {
  switch (category) {
    case Category::kParameter:
      return share.parameter_bytes;
    case Category::kGradient:
      return share.gradient_bytes;
    case Category::kOptimizerState:
      return share.optimizer_bytes;
    case Category::kActivation:
      return share.kept_bytes;
    default:
      return share.transient_bytes;
  }
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
    // A library allocates its workspace for whoever needs it first, and uses it for all.
    const bool of_library = category == Category::kWorkspace;
    const auto [known, fresh] = by_id.try_emplace(of_library ? 0 : process.nn_module_of(a));
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
    part_of(share, category) += a.block_bytes;
  }
  for (auto& [path, share] : by_path) shares.push_back(std::move(share));
  std::stable_sort(shares.begin(), shares.end(),
                   [](const ModuleShare& a, const ModuleShare& b) { return a.bytes > b.bytes; });
  return shares;
}

}  // namespace tidemark
