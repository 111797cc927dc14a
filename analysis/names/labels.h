// What is known of single blocks: what the program calls them (tidemark_name in
// include/tidemark.h), and whose parameter, gradient or optimizer state they are.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "proto/rows.h"

namespace tidemark {

class Labels {
 public:
  Labels() = default;
  explicit Labels(std::span<const TensorTag> tags);

  bool empty() const { return by_address_.empty(); }
  // The nn.Module that the block belongs to; 0: unknown.
  uint32_t owner_of(uint64_t address, int64_t birth_ns, int64_t death_ns) const {
    return last_of(owners_, address, birth_ns, death_ns);
  }
  // The last name (a string) given to the block that lived there at that time; 0: none.
  uint32_t of(uint64_t address, int64_t birth_ns, int64_t death_ns) const {
    return last_of(by_address_, address, birth_ns, death_ns);
  }

 private:
  struct Label {
    int64_t time_ns = 0;
    uint32_t value = 0;
  };
  using LabelsByAddress = std::unordered_map<uint64_t, std::vector<Label>>;  // in order of time

  static uint32_t last_of(const LabelsByAddress& all, uint64_t address, int64_t birth_ns,
                          int64_t death_ns);

  LabelsByAddress by_address_;
  LabelsByAddress owners_;
};

}  // namespace tidemark
