// How many bytes each group of blocks holds after any event.
//
// The bytes of all groups are stored at every spacing()-th event and replayed in between. The
// spacing grows with the number of groups, so that all of it takes about half a byte per event.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/stacked/block_groups.h"

namespace tidemark {

class GroupTotals {
 public:
  // A pass over all events. The history and the groups must outlive it.
  GroupTotals(const AllocationHistory& memory, const BlockGroups& groups);

  uint32_t spacing() const { return spacing_; }

  // Reads the totals after one event after the other. One thread.
  class Reader {
   public:
    explicit Reader(const GroupTotals& of) : of_(&of) { to_frame(0); }
    // Any order; ascending ones are cheap.
    void move_to(uint32_t event);
    // What the group holds; in a segment, pending frees included.
    uint64_t bytes(uint32_t group) const { return bytes_[group]; }
    // Segments only: what is reserved.
    uint64_t reserved(uint32_t group) const { return bytes_[of_->groups_->count + 1 + group]; }

   private:
    void to_frame(size_t frame);

    const GroupTotals* of_;
    std::vector<uint64_t> bytes_;
    uint32_t next_ = 0;  // event
  };

 private:
  friend class Reader;
  void apply(uint32_t event, std::vector<uint64_t>& bytes) const;

  const AllocationHistory* memory_;
  const BlockGroups* groups_;
  size_t slots_ = 0;
  uint32_t spacing_ = 0;
  std::vector<uint64_t> frames_;  // slots_ each: before event i * spacing_
};

}  // namespace tidemark
