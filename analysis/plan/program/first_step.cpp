#include "analysis/plan/program/first_step.h"

namespace tidemark {

bool ends_with_first_step(const RecordedProgram& program) {
  const std::vector<BackwardPass>& passes = program.passes();
  // What failed there is part of a later step, or of this one.
  if (passes.empty() || !program.model().failures.empty()) return false;
  bool any = false;
  for (size_t i = 0; i < program.rows(); ++i) {
    if (program.category(i) != Category::kOptimizerState) continue;
    const AllocationColumns& all = program.model().allocations;
    if (all.seeded(i) || all.birth(i) < passes.back().last) return false;
    any = true;
  }
  return any || passes.size() == 1;
}

std::vector<uint32_t> states_of_only_step(const RecordedProgram& program) {
  std::vector<uint32_t> rows;
  if (!ends_with_first_step(program)) return rows;
  for (uint32_t i = 0; i < program.rows(); ++i) {
    const bool kept = program.model().allocations.release(i) == kNever;
    if (program.category(i) == Category::kOptimizerState && kept) rows.push_back(i);
  }
  return rows;
}

}  // namespace tidemark
