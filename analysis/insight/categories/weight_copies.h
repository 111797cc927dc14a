// The 16-bit copies of weights that autocast makes. They live until its end, with a graph or
// without, and are no activations of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "analysis/history/allocation_history.h"
#include "analysis/insight/lives/stacks_through.h"
#include "analysis/names/autocast_stacks.h"

namespace tidemark {

class WeightCopies {
 public:
  WeightCopies(const Dictionary& names, const AllocationHistory& model)
      : all_(model.allocations), casts_(names), normalizing_(stacks_through(names, normalizes)) {
    // Stacks of the driver's allocations have native frames in any case.
    for (const AllocationKind& kind : all_.kinds()) named_ = named_ || casts_.contain(kind.stack);
  }

  // Native frames tell. Otherwise, an operation copies its weights first, then allocates its
  // result; other results have half the size of a parameter by chance.
  bool holds(size_t row, const std::unordered_set<uint64_t>& parameter_sizes) const {
    if (!parameter_sizes.contains(all_.asked_bytes(row) * 2)) return false;
    const uint32_t stack = all_.stack(row);
    if (named_) return casts_.contain(stack);
    const bool more_follows = row + 1 < all_.size() && all_.stack(row + 1) == stack;
    if (!more_follows || (stack < normalizing_.size() && normalizing_[stack])) return false;
    if (is_of_attention(row)) return false;
    return !crowded_.contains(all_.asked_bytes(row)) || is_at_place_of_weight(row, parameter_sizes);
  }
  // Whether native frames tell, which is certain.
  bool are_named() const { return named_; }

  // Call when all weights are known: `bytes_of` has the bytes of all weights of a size. Where more
  // blocks of half that size live at once than there are weights, some of them are casts of other
  // operands, or results.
  void find_crowded(const std::unordered_map<uint64_t, uint64_t>& bytes_of,
                    const std::unordered_set<uint64_t>& parameter_sizes);

 private:
  bool is_at_place_of_weight(size_t row, const std::unordered_set<uint64_t>& parameter_sizes) const;
  bool is_of_attention(size_t row) const;

  // Autocast computes normalizations in 32 bits. They allocate their result first, then statistics.
  static bool normalizes(std::string_view function, std::string_view file) {
    return file.ends_with("norm.py") || file.ends_with("normalization.py") ||
           function.ends_with("_norm");
  }

  const AllocationColumns& all_;
  const AutocastStacks casts_;
  const std::vector<bool> normalizing_;   // by stack
  std::unordered_set<uint64_t> crowded_;  // sizes of copies
  bool named_ = false;
};

}  // namespace tidemark
