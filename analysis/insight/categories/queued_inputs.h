// Batches that are loaded far ahead of the step that uses them, and wait on the card in a queue.
//
// A queue is filled before it is used: one step makes several batches or more. Each later step
// frees one batch, in the order in which they were made, long after it was made. A list of what
// recent steps computed, or a replay buffer, gets as much in each step as it gives up; a data set
// is freed as a whole, or never.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/history/allocation_history.h"
#include "analysis/steps/stack_roles.h"
#include "analysis/steps/steps.h"

namespace tidemark {

// Blocks of one stack.
struct QueuedLine {
  uint32_t stack = 0;
  std::vector<uint32_t> rows;  // that outlive the step they were made in; in the order of birth
  size_t steps_ahead = 0;      // the most between making and freeing one
  size_t at_peak = 0;          // how many wait at the allocated peak
  uint64_t peak_bytes = 0;
};

// Of a program that trains, or computes in steps; those with most bytes at the peak first.
std::vector<QueuedLine> lines_queued_ahead(const AllocationHistory& model, const StackRoles& roles,
                                           const Steps& steps);

}  // namespace tidemark
