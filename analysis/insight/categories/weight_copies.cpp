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

// An operation casts its operands in order, the weight last but for a bias, and allocates its
// result then. Of several blocks of one size in a row, at most one is the weight's copy.
bool WeightCopies::is_at_place_of_weight(size_t row) const {
  constexpr size_t kLongest = 3;  // of a row of blocks that one operation makes
  const auto is_alike = [&](size_t other) {
    return all_.stack(other) == all_.stack(row) && all_.asked_bytes(other) == all_.asked_bytes(row);
  };
  size_t first = row;
  while (first > 0 && row - first <= kLongest && is_alike(first - 1)) --first;
  size_t end = row + 1;
  while (end < all_.size() && end - row <= kLongest && is_alike(end)) ++end;
  if (end - first > kLongest) return true;  // several operations: which is which does not show
  const bool result_follows = end < all_.size() && all_.stack(end) == all_.stack(row);
  return row + (result_follows ? 1 : 2) == end;
}

}  // namespace tidemark
