// The iterations of a program on one device, found without its cooperation, and how memory grows
// from one to the next.
//
// Marks of optimizer steps or iterations (the recorder's, torch's, or ranges that the program named
// "step 12") are used where the trace has them. Otherwise the program's loops are, where its Python
// stacks show them. Without such stacks the rhythm of allocations is used: a request (same size and
// stack) that returns at regular intervals while little is alive begins an iteration; or the rhythm
// of collectives, where it is clearer. Everything here is linear in the number of events.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/load/trace_model.h"
#include "analysis/steps/stack_roles.h"

namespace tidemark {

enum class StepSource : uint8_t { kNone, kMarks, kRhythm, kCollectives, kLoop };

struct StepLevels {
  uint64_t low_bytes = UINT64_MAX;  // least and most allocated within the step
  uint64_t high_bytes = 0;
};

// Growth per step of one stack's allocations.
struct StackGrowth {
  uint32_t stack = 0;
  double bytes_per_step = 0;
  uint64_t held_bytes = 0;  // alive at the end of the window
  uint64_t held_count = 0;
};

struct Steps {
  StepSource source = StepSource::kNone;
  double confidence = 0;             // 0 to 1
  std::vector<uint32_t> boundaries;  // events; step i is [boundaries[i], boundaries[i + 1])
  std::vector<StepLevels> levels;    // one per step
  int64_t period_ns = 0;             // median
  double growth_bytes_per_step = 0;  // of the lowest level per step; 0 unless steady
  uint32_t window_first = 0;         // the steps in which memory grows; the same without growth
  uint32_t window_last = 0;
  std::vector<StackGrowth> growing;  // most bytes per step first; empty without growth
  // Out-of-memory errors, in order, whose step was done again and ends with the next boundary.
  std::vector<uint32_t> done_again;
  std::optional<uint64_t> before = 0;  // steps of the run before a kept window; nothing: not known

  // The boundaries in another history of the same process, by their times.
  std::vector<uint32_t> boundaries_in(const AllocationHistory& from,
                                      const AllocationHistory& other) const;
  uint32_t count() const { return static_cast<uint32_t>(levels.size()); }
  // Of a history with that many events: one more if there are events after the whole steps. It was
  // not finished, perhaps because memory ran out.
  uint32_t begun(uint32_t events) const {
    const bool more = count() != 0 && boundaries.size() > count() && boundaries[count()] < events;
    return count() + (more ? 1 : 0);
  }
  // Of the run. Where it is not known how many came before a kept window, those of the window are
  // counted from 0, and the name says so.
  uint64_t number(size_t step) const { return before.value_or(0) + step; }
  std::string name(size_t step) const;
  // Whole steps before the one that runs at an event, and after it.
  size_t before_event(uint32_t event) const;
  size_t after_event(uint32_t event) const;
  // The first boundary after an event; kNever when there is none.
  uint32_t end_of_step(uint32_t event) const;
};

Steps find_steps(const ProcessModel& process, const AllocationHistory& model,
                 const StackRoles& roles);

// Its parts, for tests and for callers with their own boundaries.
struct Rhythm {
  std::vector<uint32_t> boundaries;
  uint32_t end = kNever;  // event at which the program went on to something else
  double confidence = 0;
};
Rhythm boundaries_from_rhythm(const AllocationHistory& model);
// Nothing without Python stacks; no boundaries if they show no loop that is that of iterations.
std::optional<Rhythm> boundaries_from_loops(const ProcessModel& process,
                                            const AllocationHistory& model,
                                            const StackRoles& roles);
Rhythm boundaries_from_collectives(const ProcessModel& process, const AllocationHistory& model);
// Fills in everything that is derived from the boundaries.
void measure_steps(const AllocationHistory& model, Steps& steps);

}  // namespace tidemark
