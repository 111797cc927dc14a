// Steps that call a model several times, on equal parts of their batch.
//
// Such calls come from one line, allocate the same, none has an input of its own, and each lets go
// of what it allocated before the next: then memory follows the size of a part (a chunk, a
// micro-batch), and a smaller batch may only mean fewer parts. Calls that each get the whole batch,
// such as those of a sampler, look the same, so this is what may be and not what is. The batches of
// ordinary gradient accumulation have inputs of their own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/insight/categories/categories.h"
#include "analysis/passes/backward_passes.h"
#include "analysis/steps/steps.h"

namespace tidemark {

struct BatchParts {
  std::vector<bool> rows;      // by allocation: what may follow the size of a part; empty: nothing
  uint32_t caller = 0;         // stack of the line that has most of them at the allocated peak
  uint64_t bytes_at_peak = 0;  // of all
  uint64_t peak_bytes = 0;

  bool holds(size_t row) const { return row < rows.size() && rows[row]; }
  bool decide_peak() const { return bytes_at_peak > peak_bytes / 10; }
};

BatchParts find_batch_parts(const ProcessModel& process, const AllocationHistory& model,
                            const StackRoles& roles, const Steps& steps,
                            const Categories& categories, std::span<const BackwardPass> passes);

}  // namespace tidemark
