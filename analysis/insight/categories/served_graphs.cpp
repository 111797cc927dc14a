#include "analysis/insight/categories/served_graphs.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>

#include "analysis/insight/categories/kept_graphs.h"
#include "analysis/insight/lives/block_life.h"

namespace tidemark {

namespace {

// Requests that are served at the same time, or a loop variable, keep the blocks of a pass for one
// or two more.
constexpr size_t kLaterPasses = 3;
constexpr size_t kLeastGraphs = 2;
constexpr size_t kLeastLayers = 3;  // whose results of one line are alive

// What a forward pass allocates in modules: rows of blocks, up to the next allocation elsewhere.
struct Pass {
  std::vector<uint32_t> rows;
  uint32_t begin = 0;  // event
};

// A program that allocates nothing between its passes runs one into the other. The first line of
// the model tells them apart if it runs once in each: no line runs less often, and those of the
// layers run several times. The last pass may be unfinished. `once`: also where all lines run
// equally often, once in each pass or in each layer.
void split(const AllocationHistory& model, Pass run, bool once, std::vector<Pass>& passes) {
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
  const bool tells = most >= 2 * (times - 1) || (once && most == times);
  if (times < 2 || least + 1 < times || !tells) {
    passes.push_back(std::move(run));
    return;
  }
  for (const uint32_t i : run.rows) {
    if (model.allocations.stack(i) == first) passes.push_back({{}, model.allocations.birth(i)});
    passes.back().rows.push_back(i);
  }
}

// Up to the next allocation outside the model.
std::vector<Pass> runs_of(const AllocationHistory& model, const StackRoles& roles,
                          const std::vector<bool>& in_module,
                          const std::unordered_set<uint32_t>& left_out) {
  std::vector<Pass> runs;
  bool in_pass = false;
  for (uint32_t i = 0; i < model.allocations.size(); ++i) {
    model.passed(i);
    if (model.allocations.seeded(i)) continue;
    const uint32_t stack = model.allocations.stack(i);
    const bool forward = roles.of(stack) == StackRole::kForward && in_module[stack];
    const uint32_t birth = model.allocations.birth(i);
    if (forward && !in_pass) runs.push_back({{}, birth});
    if (forward && !left_out.contains(birth)) runs.back().rows.push_back(i);
    in_pass = forward;
  }
  return runs;
}

std::vector<Pass> passes_of(const AllocationHistory& model, const std::vector<Pass>& runs,
                            GraphSize least, bool once) {
  std::vector<Pass> passes;
  const auto is_small = [&](const Pass& p) {
    return p.rows.size() < static_cast<size_t>(least.blocks);
  };
  for (const Pass& run : runs) {
    if (!is_small(run)) split(model, run, once, passes);
  }
  std::erase_if(passes, is_small);
  return passes;
}

// What of a pass is alive at an instant.
struct Kept {
  size_t blocks = 0;
  uint64_t bytes = 0;
  struct OfStack {
    uint64_t bytes = 0;
    size_t blocks = 0;
  };
  std::unordered_map<uint32_t, OfStack> stacks;

  void add(const Allocation& a) {
    ++blocks;
    bytes += a.block_bytes;
    OfStack& of_stack = stacks[a.stack];
    of_stack.bytes += a.block_bytes;
    ++of_stack.blocks;
  }
  // Keys and values are the results of two lines.
  bool is_of_two_lines() const {
    uint64_t most = 0;
    uint64_t second = 0;
    for (const auto& [stack, of_stack] : stacks) {
      second = std::max(second, std::min(most, of_stack.bytes));
      most = std::max(most, of_stack.bytes);
    }
    return bytes - most - second < bytes / 10;
  }
};

// What of a pass is alive at an event, if that is a graph. `any`: it need not be most of the pass.
std::optional<Kept> graph_at(const AllocationHistory& model, const Pass& pass, uint32_t event,
                             bool any = false) {
  Kept kept;
  uint64_t all_bytes = 0;
  for (const uint32_t i : pass.rows) {
    const Allocation& a = model.allocations[i];
    all_bytes += a.block_bytes;
    if (meets(a, event)) kept.add(a);
  }
  if (kept.blocks < static_cast<size_t>(kGraph.blocks) || kept.stacks.size() < kGraph.stacks ||
      kept.is_of_two_lines()) {
    return std::nullopt;
  }
  if (!any && (2 * kept.blocks < pass.rows.size() || 2 * kept.bytes < all_bytes)) {
    return std::nullopt;
  }
  return kept;
}

// What an error freed, or nobody, may have waited for a backward pass.
bool is_freed(const AllocationHistory& model, const Pass& pass) {
  const uint32_t failed = model.failures.empty() ? kNever : model.failures.back().event;
  return std::all_of(pass.rows.begin(), pass.rows.end(), [&](uint32_t i) {
    const uint32_t release = model.allocations.release(i);
    return release != kNever && (pass.begin > failed || release <= failed);
  });
}

// What a pass keeps to its end, block by block, if the history began with blocks of the same sizes
// and they were freed: the graph of the pass before, which no backward pass has used.
std::vector<uint32_t> older_graph(const AllocationHistory& model, const Pass& pass) {
  const AllocationColumns& all = model.allocations;
  std::unordered_map<uint64_t, std::vector<uint32_t>> freed;  // rows by size
  for (uint32_t i = 0; i < all.size() && all.seeded(i); ++i) {
    if (all.release(i) != kNever) freed[all.block_bytes(i)].push_back(i);
  }
  std::vector<uint32_t> rows;
  size_t kept = 0;
  for (const uint32_t i : pass.rows) {
    if (!meets(all[i], all.birth(pass.rows.back()))) continue;
    ++kept;
    const auto same = freed.find(all.block_bytes(i));
    if (same == freed.end() || same->second.empty()) continue;
    rows.push_back(same->second.back());
    same->second.pop_back();
  }
  if (10 * rows.size() < 9 * kept) return {};
  std::sort(rows.begin(), rows.end());
  return rows;
}

// A graph that is whole at the end of its pass, and freed afterwards, as it was (`replaces`) in the
// pass before. A function that has returned keeps nothing without a graph: where the lines of a
// layer have run again, and again, their earlier results are not variables any more.
std::optional<Kept> graph_at_its_end(const AllocationHistory& model, const Pass& pass,
                                     bool replaces) {
  std::optional<Kept> kept =
      graph_at(model, pass, model.allocations.birth(pass.rows.back()), replaces);
  if (!kept || !(replaces || is_freed(model, pass))) return std::nullopt;
  std::erase_if(kept->stacks, [](const auto& s) { return s.second.blocks < kLeastLayers; });
  uint64_t of_layers = 0;
  for (const auto& [stack, of_stack] : kept->stacks) of_layers += of_stack.bytes;
  if (kept->stacks.size() < kGraph.stacks || 2 * of_layers < kept->bytes) return std::nullopt;
  kept->bytes = of_layers;
  return kept->is_of_two_lines() ? std::nullopt : kept;
}

// What its layers have computed is alive at the end of a pass, and then freed as a graph is.
// Operations on 32-bit numbers may leave more behind that is freed at once.
std::optional<Kept> graph_freed_at_its_end(const AllocationHistory& model, const Pass& pass) {
  constexpr uint64_t kLeastShare = 4;
  if (!is_freed(model, pass)) return std::nullopt;
  if (graph_freed_backwards(model, pass.rows, kLeastShare).empty()) return std::nullopt;
  return graph_at_its_end(model, pass, true);
}

// The same of a model whose layers differ.
std::optional<Kept> graph_without_layers(const AllocationHistory& model, const Pass& pass) {
  if (!is_freed(model, pass)) return std::nullopt;
  const std::vector<uint32_t> rows = graph_freed_backwards(model, pass.rows);
  if (rows.empty()) return std::nullopt;
  Kept kept;
  for (const uint32_t i : rows) kept.add(model.allocations[i]);
  return kept;
}

// The graphs of the passes that one line of the program runs.
struct OfLine {
  size_t passes = 0;
  size_t graphs = 0;
  std::unordered_set<uint32_t> stacks;

  void add(const std::optional<Kept>& kept) {
    ++passes;
    if (!kept) return;
    ++graphs;
    for (const auto& [stack, of_stack] : kept->stacks) stacks.insert(stack);
  }
  bool keeps_graphs() const { return graphs >= kLeastGraphs && 2 * graphs >= passes; }
};

}  // namespace

ServedGraphs served_graphs(const AllocationHistory& model, const StackRoles& roles,
                           const std::vector<bool>& in_module,
                           const std::unordered_set<uint32_t>& left_out) {
  const std::vector<Pass> runs = runs_of(model, roles, in_module, left_out);
  struct Line {  // that calls the model
    OfLine later;
    OfLine at_end;
    OfLine backwards;  // freed from their ends to their beginnings
  };
  std::unordered_map<uint32_t, Line> lines;
  const auto line_of = [&](const Pass& pass) -> Line& {
    return lines[roles.caller_of(model.allocations.stack(pass.rows.front()))];
  };
  ServedGraphs found;
  const std::vector<Pass> passes = passes_of(model, runs, kGraph, false);
  if (!passes.empty() && model.failures.empty()) found.older = older_graph(model, passes.front());
  if (!found.older.empty()) {
    const auto kept = graph_at_its_end(model, passes.front(), true);
    if (!kept) found.older.clear();
    line_of(passes.front()).at_end.add(kept);  // for the pass before
  }
  for (size_t k = 0; k < passes.size(); ++k) {
    const Pass& pass = passes[k];
    Line& line = line_of(pass);
    if (k + kLaterPasses < passes.size()) {
      line.later.add(graph_at(model, pass, passes[k + kLaterPasses].begin));
    }
    const auto kept = graph_at_its_end(model, pass, k == 0 && !found.older.empty());
    line.at_end.add(kept ? kept : graph_freed_at_its_end(model, pass));
  }
  if (passes.size() == 1 && found.older.empty()) {
    OfLine& only = line_of(passes.front()).at_end;
    only = {};
    only.add(graph_freed_at_its_end(model, passes.front()));
    only.graphs *= kLeastGraphs;  // as good as two
  }
  for (const Pass& pass : passes_of(model, runs, kSmallGraph, true)) {
    line_of(pass).backwards.add(graph_without_layers(model, pass));
  }
  for (const auto& [caller, line] : lines) {
    const bool later = line.later.keeps_graphs();
    found.outlive_passes |= later;
    const OfLine& graphs = later                        ? line.later
                           : line.at_end.keeps_graphs() ? line.at_end
                                                        : line.backwards;
    if (graphs.keeps_graphs()) found.stacks.insert(graphs.stacks.begin(), graphs.stacks.end());
  }
  if (found.stacks.empty()) found.older.clear();
  return found;
}

}  // namespace tidemark
