// Which stacks have a frame of some kind, in one pass over all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/names/dictionary.h"

namespace tidemark {

// By stack id: whether is_one(frame) holds for any of its frames. A stack's parent may have any id.
template <typename IsOne>
std::vector<bool> stacks_with(const Dictionary& names, IsOne&& is_one) {
  const size_t count = names.stack_count();
  std::vector<bool> inside(count, false);
  std::vector<bool> done(count, false);
  std::vector<uint32_t> chain;
  for (uint32_t id = 1; id < count; ++id) {
    chain.clear();
    uint32_t at = id;
    for (; at != 0 && at < count && !done[at]; at = names.stack(at).parent) {
      chain.push_back(at);
      done[at] = true;
    }
    bool outer = at != 0 && at < count && inside[at];
    for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
      outer = outer || is_one(names.frame(names.stack(*it).frame));
      inside[*it] = outer;
    }
  }
  return inside;
}

}  // namespace tidemark
