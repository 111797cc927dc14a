#include "analysis/insight/categories/moved_gradients.h"

#include <iterator>
#include <map>
#include <vector>

namespace tidemark {

namespace {

// By stack: the line of the innermost frame of _apply(); 0: there is none.
std::vector<int64_t> lines_of_apply(const Dictionary& names) {
  std::vector<int64_t> lines(names.stack_count(), 0);
  for (uint32_t id = 1; id < lines.size(); ++id) {
    const Frame& frame = names.frame(names.stack(id).frame);
    const uint32_t parent = names.stack(id).parent;
    const bool applies = names.string(frame.function).ends_with("_apply") &&
                         names.string(frame.file).ends_with("torch/nn/modules/module.py");
    lines[id] = applies ? frame.line : parent < id ? lines[parent] : 0;
  }
  return lines;
}

struct Moved {
  std::map<uint64_t, uint64_t> sizes;  // number of blocks
  uint64_t blocks = 0;
};

// Gradients have the sizes of parameters, and most parameters have one.
bool are_of(const Moved& gradients, const Moved& parameters) {
  for (const auto& [size, count] : gradients.sizes) {
    const auto found = parameters.sizes.find(size);
    if (found == parameters.sizes.end() || found->second < count) return false;
  }
  return 2 * gradients.blocks >= parameters.blocks;
}

}  // namespace

std::unordered_map<uint32_t, Confidence> moved_gradients(const Dictionary& names,
                                                         const AllocationHistory& model,
                                                         const StackRoles& roles) {
  const std::vector<int64_t> line_of = lines_of_apply(names);
  std::map<int64_t, Moved> lines;
  for (const Allocation& a : model.allocations) {
    if (a.stack >= line_of.size() || line_of[a.stack] == 0) continue;
    if (roles.of(a.stack) != StackRole::kModuleSetUp) continue;
    Moved& moved = lines[line_of[a.stack]];
    ++moved.sizes[a.asked_bytes()];
    ++moved.blocks;
  }
  std::unordered_map<uint32_t, Confidence> found;
  if (lines.size() < 2 || lines.size() > 3) return found;
  // Of two lines, the second may be that of the buffers.
  const auto second = std::next(lines.begin());
  if (lines.size() == 2 && !are_of(second->second, lines.begin()->second)) return found;
  const Confidence sure = lines.size() == 3 ? 8 : 5;
  for (uint32_t stack = 1; stack < line_of.size(); ++stack) {
    if (line_of[stack] == second->first) found[stack] = sure;
  }
  return found;
}

}  // namespace tidemark
