#include "analysis/insight/categories/kept_graphs.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace tidemark {

namespace {

// Keys and values are the results of two lines in every layer.
bool is_of_two_repeated_lines(const AllocationHistory& model, const std::vector<uint32_t>& rows) {
  constexpr size_t kLeastLayers = 3;
  struct OfLine {
    size_t blocks = 0;
    uint64_t bytes = 0;
  };
  std::unordered_map<uint32_t, OfLine> lines;
  uint64_t all = 0;
  for (const uint32_t i : rows) {
    OfLine& line = lines[model.allocations.stack(i)];
    ++line.blocks;
    line.bytes += model.allocations.block_bytes(i);
    all += model.allocations.block_bytes(i);
  }
  uint64_t most = 0;
  uint64_t second = 0;
  for (const auto& [stack, line] : lines) {
    if (line.blocks < kLeastLayers) continue;
    second = std::max(second, std::min(most, line.bytes));
    most = std::max(most, line.bytes);
  }
  return all - most - second < all / 10;
}

bool allocates_between(const AllocationHistory& model, uint32_t first, uint32_t last) {
  for (uint32_t e = first; e < last; ++e) {
    if (model.change[e] == Change::kBirth) return true;
  }
  return false;
}

// `rows`: in the order of birth, the last is the result. A graph is freed at once: keeps only what
// is freed last, with no allocation in between, and the result.
void keep_freed_at_once(const AllocationHistory& model, std::vector<uint32_t>& rows) {
  uint32_t last = 0;
  for (size_t k = 0; k + 1 < rows.size(); ++k) {
    last = std::max(last, model.allocations.release(rows[k]));
  }
  uint32_t first = last;
  while (first != 0 && model.change[first] != Change::kBirth) --first;
  const uint32_t result = rows.back();
  std::erase_if(rows,
                [&](uint32_t i) { return i != result && model.allocations.release(i) < first; });
}

// `rows`: as above.
bool are_freed_backwards(const AllocationHistory& model, const std::vector<uint32_t>& rows) {
  const size_t count = rows.size() - 1;
  uint64_t first_half = 0;
  uint64_t second_half = 0;
  uint32_t first_release = kNever;
  for (size_t k = 0; k < count; ++k) {
    const uint32_t release = model.allocations.release(rows[k]);
    first_release = std::min(first_release, release);
    if (k < count / 2) first_half += release;
    if (k >= count - count / 2) second_half += release;
  }
  if (first_half <= second_half) return false;
  const uint32_t of_result = model.allocations.release(rows.back());
  return of_result > first_release || allocates_between(model, of_result, first_release);
}

}  // namespace

std::vector<uint32_t> graph_freed_backwards(const AllocationHistory& model,
                                            const std::vector<uint32_t>& pass, uint64_t share) {
  const AllocationColumns& all = model.allocations;
  if (pass.size() < static_cast<size_t>(kSmallGraph.blocks)) return {};
  const uint32_t end = all.birth(pass.back());
  std::vector<uint32_t> kept;
  uint64_t bytes = 0;
  for (const uint32_t i : pass) {
    bytes += all.block_bytes(i);
    if (all.release(i) == kNever) return {};
    if (all.release(i) > end) kept.push_back(i);
  }
  keep_freed_at_once(model, kept);
  std::unordered_set<uint32_t> stacks;
  uint64_t kept_bytes = 0;
  for (const uint32_t i : kept) {
    kept_bytes += all.block_bytes(i);
    stacks.insert(all.stack(i));
  }
  if (kept.size() < static_cast<size_t>(kSmallGraph.blocks) || stacks.size() < kGraph.stacks ||
      share * kept_bytes < bytes || is_of_two_repeated_lines(model, kept) ||
      !are_freed_backwards(model, kept)) {
    return {};
  }
  return kept;
}

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
