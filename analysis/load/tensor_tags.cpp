#include "analysis/load/tensor_tags.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace tidemark {

std::vector<TaggedRow> tagged_rows(const AllocationHistory& model, std::vector<TensorTag> tags) {
  std::vector<TaggedRow> tagged;
  std::erase_if(tags, [&](const TensorTag& t) {
    return t.device != model.device || t.category == Category::kUnknown;
  });
  if (tags.empty()) return tagged;
  std::vector<uint32_t> order(model.allocations.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const Allocation& x = model.allocations[a];
    const Allocation& y = model.allocations[b];
    return x.address != y.address ? x.address < y.address : x.birth < y.birth;
  });
  for (const TensorTag& tag : tags) {
    // The last allocation at this address from before the tag.
    const auto behind = std::partition_point(order.begin(), order.end(), [&](uint32_t i) {
      const Allocation& a = model.allocations[i];
      return a.address < tag.address || (a.address == tag.address && a.birth_ns() <= tag.time_ns);
    });
    if (behind == order.begin()) continue;
    const uint32_t row = *std::prev(behind);
    const Allocation a = model.allocations[row];
    if (a.address == tag.address && tag.time_ns < a.death_ns()) {
      tagged.push_back({row, tag.category});
    }
  }
  return tagged;
}

void apply_tags(AllocationHistory& model, std::vector<TensorTag> tags) {
  for (const auto& [row, category] : tagged_rows(model, std::move(tags))) {
    model.allocations.set_category(row, category);
  }
}

}  // namespace tidemark
