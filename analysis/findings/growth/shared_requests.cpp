#include "analysis/findings/growth/shared_requests.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace tidemark {

namespace {

// How often a line ran after each of the blocks, until the next one.
struct LineRuns {
  uint64_t block = 0;  // the last one after which it ran
  uint64_t after_block = 0;
  uint64_t all = 0;
  uint64_t once = 0;  // blocks after which it ran once
  uint64_t some = 0;  // or more often

  void run_after(uint64_t now) {
    if (now != block) {
      block = now;
      after_block = 0;
      ++some;
    }
    ++all;
    ++after_block;
    if (after_block == 1) ++once;
    if (after_block == 2) --once;
  }
};

// By stack: the line that a function, called from one place, has reached in it; 0: it is not there.
std::vector<int64_t> lines_of_function(const Dictionary& names, uint32_t node) {
  const Stack& wanted = names.stack(node);
  const Frame& function = names.frame(wanted.frame);
  std::vector<int64_t> lines(names.stack_count(), 0);
  for (uint32_t id = 1; id < lines.size(); ++id) {
    uint32_t steps = 0;  // a damaged trace may have a circle
    for (uint32_t at = id; at != 0 && at < lines.size() && steps < 256; ++steps) {
      const Stack& s = names.stack(at);
      const Frame& f = names.frame(s.frame);
      if (s.parent == wanted.parent && f.function == function.function && f.file == function.file) {
        lines[id] = f.line;
        break;
      }
      at = s.parent;
    }
  }
  return lines;
}

// stacks: of all blocks in the order of their births.
bool is_shared_in(const Dictionary& names, const std::vector<uint32_t>& stacks, uint32_t stack,
                  uint32_t node) {
  const std::vector<int64_t> lines = lines_of_function(names, node);
  std::unordered_map<int64_t, LineRuns> runs;
  int64_t line_before = 0;
  uint64_t blocks = 0;
  for (const uint32_t s : stacks) {
    const int64_t line = lines[s];
    if (s == stack) {
      ++blocks;
    } else if (line != 0 && line != line_before && blocks != 0) {
      runs[line].run_after(blocks);
    }
    line_before = line;
  }
  return std::any_of(runs.begin(), runs.end(), [&](const auto& entry) {
    const LineRuns& run = entry.second;
    const bool each_time = run.some + run.some / 10 >= blocks && 4 * run.once >= blocks;
    return each_time && run.all > blocks + blocks / 10;
  });
}

// A row of equal ones counts once, but for those of the stack in question.
std::vector<uint32_t> stacks_in_order(const DeviceEvidence& d, uint32_t stack) {
  const AllocationColumns& all = d.model->allocations;
  const uint32_t known = static_cast<uint32_t>(d.process->names.stack_count());
  std::vector<uint32_t> stacks;
  for (size_t i = 0; i < all.size(); ++i) {
    const uint32_t s = all.stack(i);
    if (all.seeded(i) || s >= known) continue;
    if (stacks.empty() || s != stacks.back() || s == stack) stacks.push_back(s);
  }
  return stacks;
}

}  // namespace

bool requests_share_blocks(const DeviceEvidence& d, uint32_t stack) {
  if (d.categories.has_backward) return false;
  const Dictionary& names = d.process->names;
  const std::vector<uint32_t> stacks = stacks_in_order(d, stack);
  uint32_t steps = 0;
  for (uint32_t node = stack; node != 0 && node < names.stack_count() && steps < 256; ++steps) {
    if (is_shared_in(names, stacks, stack, node)) return true;
    node = names.stack(node).parent;
  }
  return false;
}

}  // namespace tidemark
