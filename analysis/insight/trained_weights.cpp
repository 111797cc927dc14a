#include "analysis/insight/trained_weights.h"

#include <set>
#include <utility>

namespace tidemark {

namespace {

// A parameter, its gradient and most states have the same size.
using OwnedSize = std::pair<uint32_t, uint64_t>;  // nn.Module, bytes

OwnedSize owned_size(const ProcessModel& process, const Allocation& a) {
  return {process.labels.owner_of(a.address, a.birth_ns(), a.death_ns()), a.asked_bytes()};
}

// Of gradients and optimizer states that name their module.
std::set<OwnedSize> trained_sizes(const ProcessModel& process, const AllocationHistory& model,
                                  std::span<const Category> categories) {
  std::set<OwnedSize> sizes;
  for (size_t i = 0; i < model.allocations.size(); ++i) {
    if (categories[i] != Category::kGradient && categories[i] != Category::kOptimizerState) {
      continue;
    }
    const OwnedSize size = owned_size(process, model.allocations[i]);
    if (size.first != 0) sizes.insert(size);
  }
  return sizes;
}

}  // namespace

TrainedWeights trained_weights(const ProcessModel& process, const AllocationHistory& model,
                               uint32_t event, std::span<const Category> categories) {
  TrainedWeights weights;
  if (process.names.nn_module_count() == 0) return weights;
  const std::set<OwnedSize> trained = trained_sizes(process, model, categories);
  if (trained.empty()) return weights;
  for (size_t i = 0; i < model.allocations.size(); ++i) {
    if (model.allocations.birth(i) > event) break;
    if (categories[i] != Category::kParameter || model.allocations.release(i) <= event) continue;
    const Allocation a = model.allocations[i];
    weights.all_bytes += a.block_bytes;
    if (!trained.contains(owned_size(process, a))) continue;
    weights.bytes += a.block_bytes;
    weights.rows.push_back(static_cast<uint32_t>(i));
  }
  return weights;
}

}  // namespace tidemark
