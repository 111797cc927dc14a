#include "analysis/passes/first_step.h"

namespace tidemark {

bool ends_with_first_step(const AllocationHistory& model, const Categories& categories,
                          const std::vector<BackwardPass>& passes) {
  // What failed there is part of a later step, or of this one.
  if (passes.empty() || !model.failures.empty()) return false;
  bool any = false;
  for (size_t i = 0; i < model.allocations.size(); ++i) {
    if (categories.of[i] != Category::kOptimizerState) continue;
    if (model.allocations.seeded(i) || model.allocations.birth(i) < passes.back().last) {
      return false;
    }
    any = true;
  }
  return any || passes.size() == 1;
}

std::vector<uint32_t> states_of_only_step(const AllocationHistory& model,
                                          const Categories& categories,
                                          const std::vector<BackwardPass>& passes) {
  std::vector<uint32_t> rows;
  if (!ends_with_first_step(model, categories, passes)) return rows;
  for (uint32_t i = 0; i < model.allocations.size(); ++i) {
    const bool kept = model.allocations.release(i) == kNever;
    if (categories.of[i] == Category::kOptimizerState && kept) rows.push_back(i);
  }
  return rows;
}

}  // namespace tidemark
