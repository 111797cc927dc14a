// The operation in which a stack allocates, also where native frames lie inside the frame that
// names it, as in snapshots that were taken with the stacks of C++.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "analysis/columns/allocation_columns.h"
#include "analysis/names/dictionary.h"

namespace tidemark {

class OperationPlaces {
 public:
  // `all`: those of PyTorch. Stacks of the driver's allocations have native frames in any case.
  OperationPlaces(const Dictionary& names, const AllocationColumns& all);

  // The part of a stack from the frame that names the operation outwards; the whole stack if none
  // does.
  uint32_t of(uint32_t stack) const { return stack < places_.size() ? places_[stack].at : stack; }
  // A node of autograd's graph, or the innermost Python function without its class: "softmax",
  // "SoftmaxBackward0".
  std::string_view name(uint32_t stack) const;
  std::string_view file(uint32_t stack) const;
  // What that frame called, "bmm", where native frames tell; otherwise empty.
  std::string_view called(uint32_t stack) const {
    return stack < places_.size() ? places_[stack].called : std::string_view{};
  }
  // Whether autocast makes a copy in 16 bits there, as native frames tell.
  bool casts(uint32_t stack) const { return stack < places_.size() && places_[stack].casts; }
  bool names_operations() const { return names_operations_; }
  // Whether weights are copied to other devices, or their gradients collected (DataParallel).
  bool replicates(uint32_t stack) const { return stack < replicates_.size() && replicates_[stack]; }

 private:
  struct Place {
    uint32_t at = 0;
    std::string_view called;
    bool casts = false;
  };
  Place place_of(uint32_t stack) const;

  const Dictionary& names_;
  std::vector<Place> places_;
  std::vector<bool> replicates_;
  bool names_operations_ = false;
};

// "softmax", "masked_softmax", "SoftmaxBackward0"; not one whose logarithm a loss takes.
bool names_softmax(std::string_view name);
// "softmax" of "models/softmax.py".
std::string_view file_stem(std::string_view file);

// Whether an operation is a matrix product or a convolution, as PyTorch names it ("bmm").
bool is_product(std::string_view called);

}  // namespace tidemark
