// The blocks of a stacked timeline that have no band of their own, told apart by when they were
// born, or by how long they live: each class of them has a place among the large blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/stacked/stacked_columns.h"

namespace tidemark {

class SmallBlocks {
 public:
  // Looks at each block of the columns. None: there are too many for that.
  static std::optional<SmallBlocks> of(const AllocationHistory& memory, const LifeTree& lives,
                                       const BlockGroups& groups, const ColumnSamples& samples,
                                       const StackOptions& options);

  uint32_t classes() const { return static_cast<uint32_t>(borders_.size()); }
  // The first stacking_key() of a class, and the first above it.
  uint64_t first_of(uint32_t of_class) const { return borders_[of_class]; }
  uint64_t end_of(uint32_t of_class) const;
  // The groups of a class from its bottom: those whose blocks stay, then the others.
  const std::vector<uint32_t>& order_of(uint32_t of_class) const { return orders_[of_class]; }

  // The columns one after the other.
  void enter(uint32_t column);
  uint64_t bytes(uint32_t of_class, uint32_t group) const {
    return now_[size_t{of_class} * groups_ + group];
  }

 private:
  SmallBlocks(const AllocationHistory& memory, const BlockGroups& groups,
              const StackOptions& options);
  void set_borders(const LifeTree& lives, const ColumnSamples& samples);
  void add(uint32_t block, const BlockGroups& groups, const ColumnSamples& samples);
  void set_orders();

  const AllocationHistory* memory_;
  StackOptions options_;
  uint64_t longest_ = 0;  // life
  uint32_t groups_ = 0;
  uint32_t columns_ = 0;
  uint32_t first_column_ = 0;      // with an instant
  std::vector<uint64_t> borders_;  // the first key of each class
  std::vector<uint64_t>
      changes_;                // by column, class and group: bytes that come, less those that go
  std::vector<uint64_t> now_;  // by class and group
  std::vector<std::vector<uint32_t>> orders_;
};

}  // namespace tidemark
