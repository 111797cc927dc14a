// The same lines request different sizes every time, so that cached blocks can rarely be reused.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "analysis/findings/advice.h"
#include "analysis/findings/rules.h"
#include "analysis/wording.h"
#include "proto/base/hash.h"

namespace tidemark {

namespace {

constexpr uint64_t kLeastReturns = 6;
// Of one stack; more are not needed to tell.
constexpr uint32_t kMostSteps = 1000;
constexpr size_t kMostSizes = 1000;

// The sizes that one stack requests: all of them, and in each step.
struct Sizes {
  uint64_t bytes = 0;
  uint32_t steps = 0;                 // in which it allocates
  uint32_t step = 0;                  // the last of them, from 1
  uint64_t sum = 0;                   // of the hashes of its sizes in that step, in any order
  std::unordered_set<uint64_t> sums;  // of earlier steps
  std::unordered_set<uint64_t> different;

  void begin(uint32_t next) {
    if (step != 0) sums.insert(sum);
    step = next;
    sum = 0;
    ++steps;
  }
};

struct Variance {
  uint64_t bytes = 0;      // requested by stacks whose sizes vary
  uint64_t all_bytes = 0;  // requested by all stacks
  uint64_t sizes = 0;      // of the stack below
  uint32_t stack = 0;      // of those with a line of the program, the one that requested most
};

// Whether the same place in the step has another size in most steps. Layers whose sizes differ
// request the same ones in the next step.
Variance variance_of(const DeviceEvidence& d) {
  std::unordered_map<uint32_t, Sizes> stacks;
  uint32_t step = 0;
  for (const Allocation& a : d.model->allocations) {
    while (step < d.steps.boundaries.size() && d.steps.boundaries[step] <= a.birth) ++step;
    if (a.seeded || a.block_bytes <= kSmallBytes || a.stack == 0 || step == 0) continue;
    Sizes& s = stacks[a.stack];
    s.bytes += a.block_bytes;
    if (s.step != step && s.steps == kMostSteps) continue;
    if (s.step != step) s.begin(step);
    s.sum += hash_word(0, a.requested_bytes);
    if (s.different.size() < kMostSizes) s.different.insert(a.requested_bytes);
  }
  Variance v;
  uint64_t most = 0;
  for (auto& [stack, s] : stacks) {
    v.all_bytes += s.bytes;
    s.sums.insert(s.sum);
    if (s.steps < kLeastReturns || s.sums.size() < s.steps * 2 / 5 + 1) continue;
    v.bytes += s.bytes;
    const bool named = d.roles->of(stack) != StackRole::kBackward;
    const uint64_t weight = named ? s.bytes : 1;
    if (weight > most || (weight == most && stack < v.stack)) {
      most = weight;
      v.stack = stack;
      v.sizes = s.different.size();
    }
  }
  return v;
}

}  // namespace

void find_shape_variance(const Evidence& evidence, std::vector<Finding>& out) {
  constexpr uint64_t kWorthSaying = uint64_t{64} << 20;
  for (const DeviceEvidence& d : evidence.devices) {
    if (!d.has_caching_allocator() || d.steps.count() < kLeastReturns) continue;
    const Variance v = variance_of(d);
    if (v.bytes == 0 || v.bytes < v.all_bytes / 3) continue;
    const uint64_t reserved = d.model->reserved_peak.bytes;
    const uint64_t cost = reserved - std::min(reserved, d.peak_bytes());
    const bool matters = cost >= kWorthSaying && cost >= reserved / 7;
    if (!matters && d.has_room()) continue;
    Finding f = d.finding(
        "shape_variance", matters ? kWarning : kInfo,
        fmt::format("allocation sizes change from step to step ({}{} sizes from one "
                    "line): the reserved peak is {} above the allocated peak",
                    v.sizes == kMostSizes ? "at least " : "", grouped(v.sizes), size_text(cost)));
    f.evidence = {{"sizes", v.sizes},
                  {"varying_bytes", v.bytes},
                  {"requested_bytes", v.all_bytes},
                  {"peak_cost_bytes", cost}};
    f.frames = d.process->names.stack_text(v.stack);
    f.advice.push_back({"pad_shapes",
                        fmt::format("pad to a few fixed lengths, or run the longest first, so that "
                                    "cached blocks can be reused: up to {} less reserved",
                                    size_text(cost)),
                        cost});
    add(f.advice, change_allocator(d, evidence.devices.size()));
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
