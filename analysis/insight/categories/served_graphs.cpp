#include "analysis/insight/categories/served_graphs.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <unordered_map>
#include <utility>

#include "analysis/insight/categories/block_life.h"
#include "analysis/insight/categories/kept_graphs.h"

namespace tidemark {

namespace {

// Requests that are served at the same time, or a loop variable, keep the blocks of a pass for one
// or two more.
constexpr size_t kLaterPasses = 3;
constexpr size_t kLeastGraphs = 2;

// What a forward pass allocates in modules: rows of blocks, up to the next allocation elsewhere.
struct Pass {
  std::vector<uint32_t> rows;
  uint32_t begin = 0;  // event
};

// A program that allocates nothing between its passes runs one into the other. The first line of
// the model tells them apart if it runs once in each: no line runs less often, and those of the
// layers run several times. The last pass may be unfinished.
void split(const AllocationHistory& model, Pass run, std::vector<Pass>& passes) {
  std::unordered_map<uint32_t, size_t> counts;  // by stack
  for (const uint32_t i : run.rows) ++counts[model.allocations.stack(i)];
  const uint32_t first = run.rows.empty() ? 0 : model.allocations.stack(run.rows.front());
  const size_t times = counts[first];
  size_t least = times;
  size_t most = times;
  for (const auto& [stack, count] : counts) {
    least = std::min(least, count);
    most = std::max(most, count);
  }
  if (times < 2 || least + 1 < times || most < 2 * (times - 1)) {
    passes.push_back(std::move(run));
    return;
  }
  for (const uint32_t i : run.rows) {
    if (model.allocations.stack(i) == first) passes.push_back({{}, model.allocations.birth(i)});
    passes.back().rows.push_back(i);
  }
}

std::vector<Pass> passes_of(const AllocationHistory& model, const StackRoles& roles,
                            const std::vector<bool>& in_module,
                            const std::unordered_set<uint32_t>& workspaces) {
  std::vector<Pass> runs;
  bool in_pass = false;
  for (uint32_t i = 0; i < model.allocations.size(); ++i) {
    model.passed(i);
    if (model.allocations.seeded(i)) continue;
    const uint32_t stack = model.allocations.stack(i);
    const bool forward = roles.of(stack) == StackRole::kForward && in_module[stack];
    const uint32_t birth = model.allocations.birth(i);
    if (forward && !in_pass) runs.push_back({{}, birth});
    if (forward && !workspaces.contains(birth)) runs.back().rows.push_back(i);
    in_pass = forward;
  }
  std::vector<Pass> passes;
  for (Pass& run : runs) split(model, std::move(run), passes);
  std::erase_if(passes,
                [](const Pass& p) { return p.rows.size() < static_cast<size_t>(kGraph.blocks); });
  return passes;
}

using BytesByStack = std::unordered_map<uint32_t, uint64_t>;

// What of a pass is alive at an event, if that is a graph; empty otherwise.
BytesByStack graph_at(const AllocationHistory& model, const Pass& pass, uint32_t event) {
  BytesByStack kept;
  size_t blocks = 0;
  uint64_t bytes = 0;
  uint64_t all_bytes = 0;
  for (const uint32_t i : pass.rows) {
    const Allocation& a = model.allocations[i];
    all_bytes += a.block_bytes;
    if (!meets(a, event)) continue;
    ++blocks;
    bytes += a.block_bytes;
    kept[a.stack] += a.block_bytes;
  }
  if (blocks < static_cast<size_t>(kGraph.blocks) || kept.size() < kGraph.stacks ||
      2 * blocks < pass.rows.size() || 2 * bytes < all_bytes) {
    return {};
  }
  // Keys and values are the results of two lines.
  uint64_t most = 0;
  uint64_t second = 0;
  for (const auto& [stack, of_stack] : kept) {
    second = std::max(second, std::min(most, of_stack));
    most = std::max(most, of_stack);
  }
  return bytes - most - second < bytes / 10 ? BytesByStack{} : kept;
}

}  // namespace

std::unordered_set<uint32_t> served_graphs(const AllocationHistory& model, const StackRoles& roles,
                                           const std::vector<bool>& in_module,
                                           const std::unordered_set<uint32_t>& workspaces) {
  struct OfLine {  // that calls the model
    size_t passes = 0;
    size_t graphs = 0;
    std::unordered_set<uint32_t> stacks;
  };
  const std::vector<Pass> passes = passes_of(model, roles, in_module, workspaces);
  std::unordered_map<uint32_t, OfLine> lines;
  for (size_t k = 0; k + kLaterPasses < passes.size(); ++k) {
    const Pass& pass = passes[k];
    OfLine& line = lines[roles.caller_of(model.allocations.stack(pass.rows.front()))];
    ++line.passes;
    const BytesByStack kept = graph_at(model, pass, passes[k + kLaterPasses].begin);
    line.graphs += kept.empty() ? 0U : 1U;
    for (const auto& [stack, bytes] : kept) line.stacks.insert(stack);
  }
  std::unordered_set<uint32_t> stacks;
  for (const auto& [caller, line] : lines) {
    if (line.graphs < kLeastGraphs || 2 * line.graphs < line.passes) continue;
    stacks.insert(line.stacks.begin(), line.stacks.end());
  }
  return stacks;
}

}  // namespace tidemark
