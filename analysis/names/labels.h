// What the program calls single blocks (tidemark_name in include/tidemark.h).
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
  // The last name (a string) given to the block that lived there at that time; 0: none.
  uint32_t of(uint64_t address, int64_t birth_ns, int64_t death_ns) const;

 private:
  struct Label {
    int64_t time_ns = 0;
    uint32_t name = 0;
  };
  std::unordered_map<uint64_t, std::vector<Label>> by_address_;  // in order of time
};

}  // namespace tidemark
