#include "analysis/findings/causes/unrelated_halves.h"

#include <cstddef>

#include "analysis/findings/one_shape.h"

namespace tidemark {

std::vector<bool> unrelated_halves(const AllocationColumns& all, uint64_t whole_bytes) {
  constexpr uint64_t kSmallPart = 32;  // sums, statistics
  std::vector<bool> unrelated(all.size(), false);
  std::vector<size_t> halves;  // of the chain
  bool has_whole = false;
  const auto end_chain = [&] {
    for (const size_t row : halves) unrelated[row] = !has_whole;
    halves.clear();
    has_whole = false;
  };
  for (size_t i = 0; i < all.size(); ++i) {
    const uint64_t bytes = all.block_bytes(i);
    if (all.seeded(i) || bytes < whole_bytes / kSmallPart) continue;
    if (!of_one_shape(bytes, whole_bytes)) {
      end_chain();
    } else if (3 * bytes < 2 * whole_bytes) {
      halves.push_back(i);
    } else {
      has_whole = true;
    }
  }
  end_chain();
  return unrelated;
}

}  // namespace tidemark
