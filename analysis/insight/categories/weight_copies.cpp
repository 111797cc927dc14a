#include "analysis/insight/categories/weight_copies.h"

#include <functional>
#include <queue>

namespace tidemark {

void WeightCopies::find_crowded(const std::unordered_map<uint64_t, uint64_t>& bytes_of,
                                const std::unordered_set<uint64_t>& parameter_sizes) {
  if (named_) return;
  // When those alive are freed, by size; the next one first.
  using Releases = std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>>;
  std::unordered_map<uint64_t, Releases> alive;
  std::unordered_set<uint64_t> crowded;
  for (size_t row = 0; row < all_.size(); ++row) {
    if (all_.seeded(row) || !holds(row, parameter_sizes)) continue;
    const uint64_t bytes = all_.asked_bytes(row);
    const auto weights = bytes_of.find(2 * bytes);
    if (weights == bytes_of.end() || crowded.contains(bytes)) continue;
    Releases& releases = alive[bytes];
    while (!releases.empty() && releases.top() < all_.birth(row)) releases.pop();
    releases.push(all_.release(row));
    if (releases.size() * 2 * bytes > weights->second) crowded.insert(bytes);
  }
  crowded_ = std::move(crowded);
}

// As compiled, an operation casts its last operand first: the bias, the weight, then its input. So
// what follows a copy in the size of a weight, in the same operation, is none.
bool WeightCopies::is_at_place_of_weight(
    size_t row, const std::unordered_set<uint64_t>& parameter_sizes) const {
  constexpr size_t kLongest = 4;  // allocations of one operation
  constexpr uint64_t kBias = 16;  // its weight is so many times as large
  const auto is_bias = [&](size_t other) {
    const uint64_t bytes = all_.asked_bytes(other);
    return parameter_sizes.contains(2 * bytes) && kBias * bytes < all_.asked_bytes(row);
  };
  size_t first = row;
  while (first > 0 && row - first <= kLongest && all_.stack(first - 1) == all_.stack(row)) {
    --first;
    // Several operations of one line may follow each other: each begins with its bias.
    if (is_bias(first)) return first + 1 == row;
  }
  if (first == row) return true;
  if (row - first > kLongest) return true;  // which is which does not show
  return !parameter_sizes.contains(2 * all_.asked_bytes(row - 1));
}

// Attention makes the state of its random numbers first, two numbers of 64 bits, in blocks of the
// smallest size.
bool WeightCopies::is_of_attention(size_t row) const {
  constexpr uint64_t kState = 512;
  return row > 1 && all_.stack(row - 1) == all_.stack(row) &&
         all_.stack(row - 2) == all_.stack(row) && all_.asked_bytes(row - 1) <= kState &&
         all_.asked_bytes(row - 2) <= kState;
}

}  // namespace tidemark
