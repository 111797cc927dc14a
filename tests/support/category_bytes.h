// What the lines of a story are categorized as.
#pragma once

#include <string_view>

#include "analysis/insight/categories/categories.h"
#include "tests/support/story.h"

namespace tidemark {

// Bytes of a category among the allocations of a line, over the whole run.
inline uint64_t bytes_at(const Trace& trace, std::string_view frame, Category category) {
  const ProcessModel& process = trace.model().processes[0];
  const AllocationHistory& model = process.framework[0];
  const StackRoles roles(process);
  const Categories found = categorize(process, model, roles, find_steps(process, model, roles));
  uint64_t bytes = 0;
  for (size_t i = 0; i < model.allocations.size(); ++i) {
    const std::vector<std::string> frames = process.names.stack_text(model.allocations.stack(i));
    if (frames.empty() || frames.front() != frame || found.of[i] != category) continue;
    bytes += model.allocations.block_bytes(i);
  }
  return bytes;
}

}  // namespace tidemark
