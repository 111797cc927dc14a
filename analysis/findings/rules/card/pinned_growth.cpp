// Page-locked host memory grows.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "analysis/findings/largest_stack.h"
#include "analysis/findings/rules.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

// When the process first computes: what is pinned before is set-up.
int64_t begin_of_work(const Evidence& evidence, const ProcessModel& process) {
  int64_t begin = INT64_MAX;
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.process != &process || d.model == nullptr) continue;
    const AllocationHistory& model = *d.model;
    if (model.event_count() == 0) continue;
    for (size_t i = 0; i < model.allocations.size(); ++i) {
      if (model.allocations.seeded(i)) continue;
      if (d.roles->of(model.allocations.stack(i)) != StackRole::kForward) continue;
      begin = std::min(begin, model.time_ns[model.allocations.birth(i)]);
      break;
    }
    if (begin == INT64_MAX && d.steps.count() != 0 &&
        d.steps.boundaries.front() < model.event_count()) {
      begin = model.time_ns[d.steps.boundaries.front()];
    }
  }
  return begin == INT64_MAX ? INT64_MIN : begin;
}

// The last instant of which memory events are known.
int64_t end_of_events(const Evidence& evidence, const ProcessModel& process, int64_t last) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.process != &process || d.model == nullptr || d.model->event_count() == 0) continue;
    last = std::max(last, d.model->time_ns[d.model->event_count() - 1]);
  }
  return last;
}

}  // namespace

void find_pinned_growth(const Evidence& evidence, std::vector<Finding>& out) {
  constexpr uint64_t kMuch = uint64_t{128} << 20;
  constexpr size_t kOften = 6;
  constexpr int64_t kParts = 8;      // of the work
  constexpr size_t kLeastParts = 3;  // in which memory is pinned: it goes on
  for (const ProcessModel& process : evidence.trace->processes) {
    size_t kept = 0;
    uint64_t all = 0;
    int64_t first = INT64_MAX;
    int64_t last = INT64_MIN;
    for (const DriverAllocation& a : process.driver.allocations) {
      first = std::min(first, a.birth_ns);
      last = std::max(last, a.birth_ns);
    }
    if (first >= last) continue;
    // The first part of a run fills its caches; what is added later is growth. The end of the run
    // frees everything, so what was alive at the last allocation counts.
    const int64_t begin = std::max(first, begin_of_work(evidence, process));
    const int64_t settled = std::max(first + (last - first) / 5 * 2, begin);
    const int64_t part = (end_of_events(evidence, process, last) - begin) / kParts + 1;
    std::set<int64_t> parts;
    std::map<uint32_t, uint64_t> by_stack;
    uint64_t gained = 0;
    for (const DriverAllocation& a : process.driver.allocations) {
      if (a.kind != MemoryKind::kPinned || a.death_ns <= last) continue;
      all += a.size_bytes;
      if (a.birth_ns < settled) continue;
      ++kept;
      parts.insert((a.birth_ns - begin) / part);
      gained += a.size_bytes;
      by_stack[a.stack] += a.size_bytes;
    }
    if (gained < kMuch || kept < kOften || gained < all / 4) continue;
    if (parts.size() < kLeastParts) continue;
    const auto device =
        std::find_if(evidence.devices.begin(), evidence.devices.end(),
                     [&](const DeviceEvidence& d) { return d.process == &process; });
    if (device == evidence.devices.end()) continue;
    // What one line keeps, from its first block on.
    const uint32_t stack = largest_stack(by_stack);
    uint64_t held = 0;
    uint64_t pieces = 0;
    uint64_t largest = 0;
    for (const DriverAllocation& a : process.driver.allocations) {
      if (a.kind != MemoryKind::kPinned || a.death_ns <= last || a.stack != stack) continue;
      held += a.size_bytes;
      ++pieces;
      largest = std::max(largest, a.size_bytes);
    }
    Finding f = device->finding(
        "pinned_growth", kWarning,
        fmt::format(
            "pinned host memory keeps growing: {} in {} of one line, {} in total at the end",
            size_text(held), counted(pieces, "allocation"), size_text(all)));
    f.evidence = {{"gained_bytes", gained}, {"pieces", pieces}, {"pinned_bytes", all}};
    f.frames = process.names.stack_text(stack);
    f.advice.push_back(
        {"reuse_pinned",
         fmt::format("reuse one pinned buffer instead of keeping them all: saves {} of host "
                     "memory",
                     size_text(held - largest)),
         held - largest});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
