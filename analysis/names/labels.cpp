#include "analysis/names/labels.h"

#include <algorithm>

namespace tidemark {

Labels::Labels(std::span<const TensorTag> tags) {
  for (const TensorTag& tag : tags) {
    if (tag.name != 0) by_address_[tag.address].push_back({tag.time_ns, tag.name});
    if (tag.nn_module != 0) owners_[tag.address].push_back({tag.time_ns, tag.nn_module});
  }
  for (LabelsByAddress* all : {&by_address_, &owners_}) {
    for (auto& [address, labels] : *all) {
      std::stable_sort(labels.begin(), labels.end(),
                       [](const Label& a, const Label& b) { return a.time_ns < b.time_ns; });
    }
  }
}

uint32_t Labels::last_of(const LabelsByAddress& all, uint64_t address, int64_t birth_ns,
                         int64_t death_ns) {
  const auto found = all.find(address);
  if (found == all.end()) return 0;
  const std::vector<Label>& labels = found->second;
  const auto behind = std::partition_point(
      labels.begin(), labels.end(), [&](const Label& label) { return label.time_ns < death_ns; });
  if (behind == labels.begin() || std::prev(behind)->time_ns < birth_ns) return 0;
  return std::prev(behind)->value;
}

}  // namespace tidemark
