// What the blocks of a story are categorized as.
#pragma once

#include <string_view>

#include "analysis/insight/categories/categories.h"
#include "tests/support/story.h"

namespace tidemark {

// Bytes of a category among the allocations for which `counts`, given their history and number.
template <typename Counts>
uint64_t bytes_where(const Trace& trace, Category category, const Counts& counts) {
  const ProcessModel& process = trace.model().processes[0];
  const AllocationHistory& model = process.framework[0];
  const StackRoles roles(process);
  const Categories found = categorize(process, model, roles, find_steps(process, model, roles));
  uint64_t bytes = 0;
  for (size_t i = 0; i < found.of.size(); ++i) {
    if (found.of[i] == category && counts(model, i)) bytes += model.allocations.block_bytes(i);
  }
  return bytes;
}

// Of a line, over the whole run.
inline uint64_t bytes_at(const Trace& trace, std::string_view frame, Category category) {
  const Dictionary& names = trace.model().processes[0].names;
  return bytes_where(trace, category, [&](const AllocationHistory& model, size_t i) {
    const std::vector<std::string> frames = names.stack_text(model.allocations.stack(i));
    return !frames.empty() && frames.front() == frame;
  });
}

}  // namespace tidemark
