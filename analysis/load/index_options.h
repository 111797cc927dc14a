// Whether and where the indexes of large traces are kept.
#pragma once

#include <cstdint>
#include <string>

namespace tidemark {

struct IndexOptions {
  std::string directory;                     // empty: indexes are neither used nor created
  uint64_t from_events = 2'000'000;          // smaller traces load as fast as their index
  uint64_t most_bytes = uint64_t{20} << 30;  // of all indexes; the oldest are removed first

  // TIDEMARK_INDEX: 0 for none, or a directory, of which the sub-directory "tidemark-index" is
  // used; default: "tidemark/index" in the user's cache.
  static IndexOptions from_environment();
};

}  // namespace tidemark
