#include <algorithm>
#include <array>

#include "analysis/insight/categories/categories.h"

namespace tidemark {

std::vector<CategoryShare> shares_by_category(const AllocationHistory& model,
                                              const MemoryState& state,
                                              const Categories& categories) {
  std::array<CategoryShare, 256> sums{};
  for (const uint32_t i : state.live) {
    if (state.is_pending(model, i)) continue;
    CategoryShare& sum = sums[static_cast<uint8_t>(categories.of[i])];
    sum.category = categories.of[i];
    sum.bytes += model.allocations[i].block_bytes;
    sum.confidence +=
        static_cast<double>(model.allocations[i].block_bytes) * categories.confidence[i] / 10;
    ++sum.count;
  }
  std::vector<CategoryShare> shares;
  for (CategoryShare& share : sums) {
    if (share.count == 0) continue;
    if (share.bytes != 0) share.confidence /= static_cast<double>(share.bytes);
    share.may_be_states = share.category == Category::kParameter && categories.older_may_be_states;
    shares.push_back(share);
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return shares;
}

void infer_categories(TraceModel& trace) {
  for (ProcessModel& process : trace.processes) {
    if (process.framework.empty()) continue;
    const StackRoles roles(process);
    for (AllocationHistory& model : process.framework) {
      const Categories found = categorize(process, model, roles, find_steps(process, model, roles));
      for (size_t i = 0; i < found.of.size(); ++i) model.allocations.set_category(i, found.of[i]);
    }
  }
}

}  // namespace tidemark
