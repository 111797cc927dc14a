#include "analysis/load/handled_refusals.h"

#include <algorithm>
#include <array>
#include <string_view>

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

}  // namespace

void set_aside_handled_refusals(ProcessModel& process) {
  DriverModel& driver = process.driver;
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
