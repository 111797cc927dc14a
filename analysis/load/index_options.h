// Whether and where the indexes of large traces are kept.
#pragma once

#include <cstdint>
#include <string>

namespace tidemark {

struct IndexOptions {
  std::string directory;                     // empty: none is used, none is made
  uint64_t from_events = 2'000'000;          // smaller traces are read as quickly as their index
  uint64_t most_bytes = uint64_t{20} << 30;  // of all indexes together; the oldest go first

  // TIDEMARK_INDEX: 0 for none, or a directory; else "tidemark/index" in the user's cache.
  static IndexOptions from_environment();
};

}  // namespace tidemark
