#include "analysis/insight/adapted_layers.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "analysis/insight/module_tree.h"

namespace tidemark {

namespace {

constexpr size_t kMostInLayer = 6;    // a matrix, its bias, an adapter and what scales it
constexpr uint64_t kThin = 4;         // an adapter takes at most this part of its matrix
constexpr uint64_t kLeastRatio = 16;  // a bias and the scale of a norm look like rank 1
constexpr uint64_t kLeastLayers = 4;
constexpr uint64_t kRepeats = 3;  // an embedding or a head may be trained on purpose
constexpr uint64_t kFrozenPart = 20;

// The trained weights of a module and all inside it.
struct Group {
  std::vector<uint32_t> rows;  // no more than one above kMostInLayer
  bool is_named = false;       // as adapters are
};

struct AdaptedLayer {
  uint32_t weight = 0;  // allocation
  uint64_t adapter_bytes = 0;
  uint64_t ratio = 0;  // r * r, times the bytes of a number
  bool is_named = false;
};

bool names_adapter(std::string_view path) {
  std::string lower(path);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower.find("lora") != lower.npos || lower.find("adapter") != lower.npos;
}

bool is_square(uint64_t number) {
  const auto root = static_cast<uint64_t>(std::llround(std::sqrt(static_cast<double>(number))));
  return root * root == number;
}

// r * r times the bytes of a number, if these can be the parts of an adapter. Numbers have 1, 2 or
// 4 bytes, those of the matrix perhaps fewer.
std::optional<uint64_t> ratio_of(uint64_t weight, uint64_t one, uint64_t other) {
  const double estimate =
      static_cast<double>(one) * static_cast<double>(other) / static_cast<double>(weight);
  if (estimate < static_cast<double>(kLeastRatio) || estimate > 1e9) return std::nullopt;
  const auto ratio = static_cast<uint64_t>(std::llround(estimate));
  // Exact, and without an overflow.
  const uint64_t common = std::gcd(one, weight);
  if (other % (weight / common) != 0) return std::nullopt;
  const bool is_rank = is_square(ratio) || (ratio % 2 == 0 && is_square(ratio / 2));
  return is_rank ? std::optional(ratio) : std::nullopt;
}

// The adapter among the other weights of a group, which are all smaller than its parts.
std::optional<AdaptedLayer> adapted_layer(const AllocationColumns& all, const Group& group) {
  if (group.rows.size() < 3 || group.rows.size() > kMostInLayer) return std::nullopt;
  std::vector<uint32_t> rows = group.rows;
  std::stable_sort(rows.begin(), rows.end(),
                   [&](uint32_t a, uint32_t b) { return all.asked_bytes(a) > all.asked_bytes(b); });
  const uint64_t weight = all.asked_bytes(rows[0]);
  const uint64_t one = all.asked_bytes(rows[1]);
  const uint64_t other = all.asked_bytes(rows[2]);
  if (kThin * (one + other) > weight) return std::nullopt;
  if (rows.size() > 3 && all.asked_bytes(rows[3]) >= other) return std::nullopt;
  const std::optional<uint64_t> ratio = ratio_of(weight, one, other);
  if (!ratio) return std::nullopt;
  return AdaptedLayer{rows[0], all.block_bytes(rows[1]) + all.block_bytes(rows[2]), *ratio,
                      group.is_named};
}

// Each matrix once: the module of an adapter may be the only one inside another.
std::map<uint32_t, AdaptedLayer> layers_with_adapter(const ProcessModel& process,
                                                     const AllocationHistory& model,
                                                     const TrainedWeights& trained) {
  using Place = std::pair<uint32_t, std::string_view>;  // root, path
  const AllocationColumns& all = model.allocations;
  const Dictionary& names = process.names;
  std::map<Place, Group> groups;
  for (const uint32_t row : trained.rows) {
    const NnModule& module = names.nn_module(process.nn_module_of(all[row]));
    const std::string_view path = names.string(module.path);
    const bool is_named = names_adapter(path) || names_adapter(names.string(module.class_name));
    for (const std::string_view prefix : module_prefixes(path)) {
      Group& group = groups[{module.root, prefix}];
      if (group.rows.size() <= kMostInLayer) group.rows.push_back(row);
      group.is_named = group.is_named || is_named;
    }
  }
  std::map<uint32_t, AdaptedLayer> layers;  // by matrix
  for (const auto& [place, group] : groups) {
    if (const auto layer = adapted_layer(all, group)) layers[layer->weight] = *layer;
  }
  return layers;
}

// Ranks that few layers have are chance.
void keep_frequent(std::map<uint32_t, AdaptedLayer>& layers) {
  std::map<uint64_t, uint64_t> counts;
  for (const auto& [weight, layer] : layers) ++counts[layer.ratio];
  std::erase_if(layers,
                [&](const auto& entry) { return counts[entry.second.ratio] < kLeastLayers; });
}

// A name, matrices of different shapes with adapters of one rank, or weights that are frozen:
// blocks with a bottleneck of their own have none of these.
bool are_adapters(const AllocationColumns& all, const std::map<uint32_t, AdaptedLayer>& layers,
                  const TrainedWeights& trained) {
  if (trained.all_bytes - trained.bytes >= trained.all_bytes / kFrozenPart) return true;
  std::map<uint64_t, std::set<uint64_t>> sizes;  // of matrices, by rank
  for (const auto& [weight, layer] : layers) {
    if (layer.is_named) return true;
    sizes[layer.ratio].insert(all.asked_bytes(weight));
  }
  return std::any_of(sizes.begin(), sizes.end(),
                     [](const auto& entry) { return entry.second.size() > 1; });
}

}  // namespace

AdaptedLayers find_adapted_layers(const ProcessModel& process, const AllocationHistory& model,
                                  const TrainedWeights& trained) {
  AdaptedLayers found;
  std::map<uint32_t, AdaptedLayer> layers = layers_with_adapter(process, model, trained);
  keep_frequent(layers);
  const AllocationColumns& all = model.allocations;
  if (layers.empty() || !are_adapters(all, layers, trained)) return found;
  uint64_t smallest = UINT64_MAX;
  for (const auto& [weight, layer] : layers) {
    smallest = std::min(smallest, all.asked_bytes(weight));
    found.adapter_bytes += layer.adapter_bytes;
  }
  found.layers = layers.size();
  // Weights of the repeated layers that have no adapter.
  std::map<uint64_t, uint64_t> counts;
  for (const uint32_t row : trained.rows) ++counts[all.asked_bytes(row)];
  for (const uint32_t row : trained.rows) {
    const uint64_t bytes = all.asked_bytes(row);
    if (!layers.contains(row) && (bytes < smallest || counts[bytes] < kRepeats)) continue;
    found.weights.push_back(row);
    found.weight_bytes += all.block_bytes(row);
  }
  return found;
}

}  // namespace tidemark
