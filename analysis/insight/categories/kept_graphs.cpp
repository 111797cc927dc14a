#include "analysis/insight/categories/kept_graphs.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace tidemark {

void keep_only_graphs(const AllocationHistory& model, GraphSize least, Categories& out) {
  std::vector<uint32_t>& kept = out.kept_without_backward;
  std::vector<std::pair<uint32_t, int>> edges;
  for (const uint32_t i : kept) {
    edges.emplace_back(model.allocations[i].birth, 1);
    edges.emplace_back(model.allocations[i].release, -1);
  }
  std::sort(edges.begin(), edges.end());
  int64_t alive = 0;
  int64_t most = 0;
  uint32_t when = 0;
  for (const auto& [event, step] : edges) {
    alive += step;
    if (alive > most) when = event;
    most = std::max(most, alive);
  }
  std::unordered_set<uint32_t> stacks;
  for (const uint32_t i : kept) {
    if (model.allocations[i].alive_at(when)) stacks.insert(model.allocations[i].stack);
  }
  if (most < least.blocks || stacks.size() < least.stacks) {
    kept.clear();
    return;
  }
  if (least.blocks < kGraph.blocks) return;  // lines that keep graphs are known
  // The last layers' blocks are short-lived but belong to the same graph.
  for (uint32_t i = 0; i < model.allocations.size(); ++i) {
    const Allocation& a = model.allocations[i];
    if (out.of[i] != Category::kTemporary || !stacks.contains(a.stack)) continue;
    kept.push_back(i);
    out.of[i] = Category::kActivation;
    out.confidence[i] = 5;
  }
  std::sort(kept.begin(), kept.end());
}

}  // namespace tidemark
