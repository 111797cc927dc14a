#include "analysis/insight/categories/serving_cache.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "analysis/insight/categories/block_life.h"
#include "analysis/insight/categories/stacks_through.h"

namespace tidemark {

namespace {

// Functions of vLLM and Hugging Face's transformers, and methods of a class that is called a cache.
bool names_cache(std::string_view function, std::string_view file) {
  const auto has = [](std::string_view text, std::string_view part) {
    return text.find(part) != text.npos;
  };
  return !has(file, "torch/") && (has(function, "kv_cache") || has(function, "Cache.") ||
                                  has(file, "cache_utils.py") || has(file, "kv_cache"));
}

}  // namespace

ServingCache::ServingCache(const ProcessModel& process, const AllocationHistory& model,
                           const StackRoles& roles, const Steps& steps)
    : model_(model),
      roles_(roles),
      steps_(steps),
      named_(stacks_through(process.names, names_cache)) {}

void ServingCache::survey(const std::unordered_set<uint64_t>& parameter_sizes,
                          std::unordered_set<uint64_t>& kept_sizes) {
  constexpr size_t kSizesOfModel = 3;
  std::unordered_map<uint32_t, std::pair<size_t, uint32_t>> in_pass;  // stack -> pass, blocks
  std::unordered_map<uint32_t, std::unordered_set<uint64_t>> copied;  // stack -> parameter sizes
  for (size_t i = 0; i < model_.allocations.size(); ++i) {
    model_.passed(i);
    const Allocation& a = model_.allocations[i];
    if (a.seeded || passes_in(a) == 0) continue;
    const StackRole role = roles_.of(a.stack);
    if (role == StackRole::kModuleSetUp || role == StackRole::kLoading) continue;
    if (a.block_bytes > kSmallBytes) kept_sizes.insert(a.requested_bytes);
    if (role == StackRole::kUser && parameter_sizes.contains(a.requested_bytes)) {
      auto& sizes = copied[a.stack];
      sizes.insert(a.requested_bytes);
      if (sizes.size() >= kSizesOfModel) copies_.insert(a.stack);
    }
    if (role != StackRole::kForward) continue;
    const size_t pass = pass_of(a);
    auto& [last, blocks] = in_pass[a.stack];
    blocks = last == pass ? blocks + 1 : 1;
    last = pass;
    if (blocks > 1) cache_stacks_.insert(a.stack);
  }
}

// The number of passes begun when it was allocated.
size_t ServingCache::pass_of(const Allocation& a) const {
  const auto next = std::upper_bound(passes_.begin(), passes_.end(), a.birth);
  return static_cast<size_t>(next - passes_.begin());
}

// Forward passes that begin while it is alive.
size_t ServingCache::passes_in(const Allocation& a) const {
  const auto first = std::upper_bound(passes_.begin(), passes_.end(), a.birth);
  return static_cast<size_t>(std::lower_bound(first, passes_.end(), a.release) - first);
}

bool ServingCache::holds(const Allocation& a, uint32_t pass_end, bool kept_long) const {
  // A cache that is concatenated anew with every token has a block for no longer than that.
  constexpr uint32_t kBrief = 8;  // events
  if (a.stack < named_.size() && named_[a.stack]) {
    return kept_long || a.release - a.birth > kBrief;
  }
  const uint32_t requests = std::max<uint32_t>(steps_.count(), 1);
  if (passes_.size() < size_t{3} * requests) return false;
  if (roles_.of(a.stack) == StackRole::kUser) {
    const bool weight = stays(a) && a.birth < passes_.front();
    return !weight && !copies_model(a) && a.block_bytes > kSmallBytes && passes_in(a) >= 3;
  }
  // No pass follows the last token of a request.
  return cache_stacks_.contains(a.stack) && meets(a, pass_end);
}

}  // namespace tidemark
