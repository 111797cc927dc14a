#include "analysis/plan/laws/older_blocks.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

namespace tidemark {

namespace {

struct BlocksOfSize {
  std::vector<SizeLaw> laws;  // of recorded blocks
  std::vector<size_t> older;  // rows
};

bool precedes(const SizeLaw& a, const SizeLaw& b) {
  return std::tie(a.seq, a.batch, a.scaled, a.sure) < std::tie(b.seq, b.batch, b.scaled, b.sure);
}

}  // namespace

void set_laws_of_older(const RecordedProgram& program, const std::vector<bool>& known,
                       SizeLaws& laws) {
  std::map<uint64_t, BlocksOfSize> sizes;
  for (size_t i = 0; i < program.rows(); ++i) {
    if (program.category(i) != Category::kActivation || laws[i].scaled == 0) continue;
    if (program.model().allocations.seeded(i)) {
      sizes[program.bytes(i)].older.push_back(i);
    } else if (known[i] && program.role(i) == StackRole::kForward) {
      sizes[program.bytes(i)].laws.push_back(laws[i]);
    }
  }
  for (auto& [bytes, blocks] : sizes) {
    if (blocks.laws.empty()) continue;
    std::sort(blocks.laws.begin(), blocks.laws.end(), precedes);
    const size_t count = blocks.older.size();
    for (size_t k = 0; k < count; ++k) {
      laws[blocks.older[k]] = blocks.laws[(2 * k + 1) * blocks.laws.size() / (2 * count)];
    }
  }
}

}  // namespace tidemark
