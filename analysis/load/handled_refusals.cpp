#include "analysis/load/handled_refusals.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "analysis/columns/birth_rows.h"
#include "analysis/names/program_places.h"

namespace tidemark {

namespace {

// The allocator holds its lock from the refusal until it succeeds or gives up, so the next segment
// or failure of the device is the outcome. False: there is none.
bool is_handled(AllocationHistory& history, const FailedAllocation& refusal) {
  const auto earlier = [](const auto& row, int64_t time_ns) { return row.time_ns < time_ns; };
  const auto failure =
      std::lower_bound(history.failures.begin(), history.failures.end(), refusal.time_ns, earlier);
  auto segment = std::lower_bound(history.segment_changes.begin(), history.segment_changes.end(),
                                  refusal.time_ns, earlier);
  while (segment != history.segment_changes.end() && !segment->grows) ++segment;
  const bool got_segment = segment != history.segment_changes.end();
  if (failure == history.failures.end()) return got_segment;
  if (!got_segment || failure->time_ns <= segment->time_ns) ++failure->refusals;
  return true;
}

// Allocators that a program calls for its memory pass the error on; only these do not.
bool may_fall_back(std::string_view owner) {
  constexpr std::array<std::string_view, 10> kLibraries = {
      "cublas",   "cublasLt", "cudnn",    "cufft",      "cusolver",
      "cusparse", "curand",   "tensorrt", "cusparseLt", "cutensor"};
  return std::find(kLibraries.begin(), kLibraries.end(), owner) != kLibraries.end();
}

bool allocated_after(const ProcessModel& process, int64_t time_ns) {
  const auto& driver = process.driver.allocations;
  if (!driver.empty() && driver.back().birth_ns > time_ns) return true;
  return std::any_of(process.framework.begin(), process.framework.end(), [&](const auto& h) {
    return h.allocations.size() != 0 &&
           h.allocations[h.allocations.size() - 1].birth_ns() > time_ns;
  });
}

// The calls of operators that stacks belong to: C++ has other frames for a result than for each
// workspace. A line of Python, or a node of autograd's graph.
class Calls {
 public:
  explicit Calls(const Dictionary& names) : names_(names), places_(names) {}

  bool same(uint32_t a, uint32_t b) const {
    if (a == b) return true;
    if (places_.of(a) != 0 || places_.of(b) != 0) return places_.of(a) == places_.of(b);
    return node_of(a) != 0 && node_of(a) == node_of(b);
  }

 private:
  uint32_t node_of(uint32_t stack) const {
    constexpr int kMostFrames = 1000;  // a damaged trace may have a circle
    for (int i = 0; stack != 0 && stack < names_.stack_count() && i < kMostFrames; ++i) {
      const std::string_view function =
          names_.string(names_.frame(names_.stack(stack).frame).function);
      if (function.find("Backward") != function.npos && function.find("apply(") != function.npos) {
        return stack;
      }
      stack = names_.stack(stack).parent;
    }
    return 0;
  }

  const Dictionary& names_;
  const Places places_;
};

// Whether nothing but segments came and went between two failures from one place.
bool is_next_attempt(const Calls& calls, const AllocationHistory& history,
                     const FailedAllocation& failure, const FailedAllocation& next) {
  if (failure.stack == 0 || !calls.same(next.stack, failure.stack)) return false;
  const auto by_event = [](uint32_t event, const SegmentChange& c) { return event < c.event; };
  const auto& changes = history.segment_changes;
  const auto after = std::upper_bound(changes.begin(), changes.end(), failure.event, by_event);
  const auto end = std::upper_bound(after, changes.end(), next.event, by_event);
  return static_cast<size_t>(end - after) == next.event - failure.event;
}

// The number of blocks that were born before it.
size_t blocks_before(const AllocationColumns& all, const FailedAllocation& failure) {
  return first_born_from(all, failure.event + 1);
}

// Whether the operator that failed had already allocated something: its result.
bool has_begun(const Calls& calls, const AllocationHistory& history,
               const FailedAllocation& failure) {
  const size_t before = blocks_before(history.allocations, failure);
  return before != 0 && calls.same(history.allocations.stack(before - 1), failure.stack);
}

// Whether another operator fails next, and this one still has its result: it had no error.
bool leaves_result_to(const Calls& calls, const AllocationHistory& history,
                      const FailedAllocation& failure, const FailedAllocation& next) {
  constexpr size_t kOfOneOperator = 4;
  if (calls.same(failure.stack, next.stack)) return false;
  const AllocationColumns& all = history.allocations;
  const size_t born = blocks_before(all, failure);
  for (size_t i = born; i-- > 0 && born - i <= kOfOneOperator;) {
    if (!calls.same(all.stack(i), failure.stack)) return false;
    if (all.release(i) > next.event) return true;
  }
  return false;
}

// Whether it still has its result when the program allocates again: an error would have freed it.
bool went_on(const Calls& calls, const AllocationHistory& history,
             const FailedAllocation& failure) {
  constexpr size_t kOfOneOperator = 4;
  const AllocationColumns& all = history.allocations;
  const size_t next = blocks_before(all, failure);
  if (next == all.size()) return false;
  for (size_t i = next; i-- > 0 && next - i <= kOfOneOperator;) {
    if (!calls.same(all.stack(i), failure.stack)) return false;
    if (all.release(i) > all.birth(next)) return true;
  }
  return false;
}

bool is_of_backward(const Dictionary& names, uint32_t stack) {
  for (; stack != 0; stack = names.stack(stack).parent) {
    if (names.frame(names.stack(stack).frame).kind == FrameKind::kAutograd) return true;
  }
  return false;
}

// Whether a backward pass goes on with another operator, and has what it computed before: an error
// ends it, and what it was passing on is freed.
bool backward_went_on(const Dictionary& names, const AllocationHistory& history,
                      const FailedAllocation& failure) {
  constexpr size_t kOfSomeOperators = 8;
  const AllocationColumns& all = history.allocations;
  const size_t next = blocks_before(all, failure);
  if (next == all.size() || !is_of_backward(names, failure.stack) ||
      !is_of_backward(names, all.stack(next))) {
    return false;
  }
  for (size_t i = next; i-- > 0 && next - i <= kOfSomeOperators;) {
    if (!is_of_backward(names, all.stack(i))) return false;
    if (all.release(i) > all.birth(next)) return true;
  }
  return false;
}

// A convolution that has its result asks for one workspace after the other until it gets one, or
// does without.
void set_aside_attempts(const Dictionary& names, AllocationHistory& history,
                        std::vector<FailedAllocation>& handled) {
  std::vector<FailedAllocation>& failures = history.failures;
  if (failures.empty()) return;
  const Calls calls(names);
  std::vector<FailedAllocation> left;
  bool is_attempt = false;  // with one before it
  for (size_t i = 0; i < failures.size(); ++i) {
    const bool has_next = i + 1 < failures.size() &&
                          is_next_attempt(calls, history, failures[i], failures[i + 1]) &&
                          has_begun(calls, history, failures[i]);
    const bool leaves_result =
        i + 1 < failures.size() && leaves_result_to(calls, history, failures[i], failures[i + 1]);
    const bool made_do =
        has_next || leaves_result || (is_attempt && went_on(calls, history, failures[i])) ||
        (has_begun(calls, history, failures[i]) && backward_went_on(names, history, failures[i]));
    (made_do ? handled : left).push_back(failures[i]);
    is_attempt = has_next;
  }
  failures = std::move(left);
}

}  // namespace

void set_aside_handled_refusals(ProcessModel& process) {
  DriverModel& driver = process.driver;
  for (AllocationHistory& history : process.framework) {
    set_aside_attempts(process.names, history, driver.handled);
  }
  std::vector<FailedAllocation> left;
  for (const FailedAllocation& refusal : driver.failures) {
    const auto history =
        std::find_if(process.framework.begin(), process.framework.end(),
                     [&](const AllocationHistory& h) { return h.device == refusal.device; });
    const std::string_view owner = process.names.string(refusal.owner);
    const bool handled =
        owner == "torch" && history != process.framework.end() && is_handled(*history, refusal);
    const bool made_do = may_fall_back(owner) && allocated_after(process, refusal.time_ns);
    (handled || made_do ? driver.handled : left).push_back(refusal);
  }
  driver.failures = std::move(left);
}

}  // namespace tidemark
