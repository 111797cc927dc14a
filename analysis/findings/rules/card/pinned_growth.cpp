// Page-locked host memory grows.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/findings/largest_stack.h"
#include "analysis/findings/rules.h"
#include "analysis/wording.h"

namespace tidemark {

void find_pinned_growth(const Evidence& evidence, std::vector<Finding>& out) {
  constexpr uint64_t kMuch = uint64_t{128} << 20;
  constexpr size_t kOften = 6;
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
    const int64_t settled = first + (last - first) / 5 * 2;
    std::map<uint32_t, uint64_t> by_stack;
    uint64_t gained = 0;
    for (const DriverAllocation& a : process.driver.allocations) {
      if (a.kind != MemoryKind::kPinned || a.death_ns <= last) continue;
      all += a.size_bytes;
      if (a.birth_ns < settled) continue;
      ++kept;
      gained += a.size_bytes;
      by_stack[a.stack] += a.size_bytes;
    }
    if (gained < kMuch || kept < kOften || gained < all / 4) continue;
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
