#include "analysis/findings/shared_requests.h"

#include <unordered_map>
#include <vector>

namespace tidemark {

namespace {

// How often a line ran after each of the blocks, until the next one.
struct LineRuns {
  uint64_t now = 0;
  uint64_t all = 0;
  uint64_t once = 0;  // blocks after which it ran once
  uint64_t some = 0;  // or more often

  void next_block() {
    all += now;
    once += now == 1 ? 1U : 0U;
    some += now != 0 ? 1U : 0U;
    now = 0;
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

bool is_shared_in(const DeviceEvidence& d, uint32_t stack, uint32_t node) {
  const std::vector<int64_t> lines = lines_of_function(d.process->names, node);
  const AllocationColumns& all = d.model->allocations;
  std::unordered_map<int64_t, LineRuns> runs;
  int64_t line_before = 0;
  uint64_t blocks = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all.seeded(i) || all.stack(i) >= lines.size()) continue;
    const int64_t line = lines[all.stack(i)];
    if (all.stack(i) == stack) {
      ++blocks;
      for (auto& [number, run] : runs) run.next_block();
    } else if (line != 0 && line != line_before && blocks != 0) {
      ++runs[line].now;
    }
    line_before = line;
  }
  for (auto& [line, run] : runs) {
    run.next_block();
    const bool each_time = run.some + run.some / 10 >= blocks && 4 * run.once >= blocks;
    if (each_time && run.all > blocks + blocks / 10) return true;
  }
  return false;
}

}  // namespace

bool requests_share_blocks(const DeviceEvidence& d, uint32_t stack) {
  if (d.categories.has_backward) return false;
  const Dictionary& names = d.process->names;
  uint32_t steps = 0;
  for (uint32_t node = stack; node != 0 && node < names.stack_count() && steps < 256; ++steps) {
    if (is_shared_in(d, stack, node)) return true;
    node = names.stack(node).parent;
  }
  return false;
}

}  // namespace tidemark
