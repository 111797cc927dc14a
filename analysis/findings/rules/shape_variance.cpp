// The same lines request different sizes every time, so that cached blocks can rarely be reused.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "analysis/findings/advice.h"
#include "analysis/findings/rules.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kLeastReturns = 6;

struct Sizes {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t largest = 0;
  std::unordered_set<uint64_t> different;
};

struct Variance {
  uint64_t bytes = 0;      // requested by stacks whose sizes vary
  uint64_t all_bytes = 0;  // requested by all stacks
  uint64_t most_sizes = 0;
  uint32_t stack = 0;  // the one that requested most
};

// Counts sizes per step: sizes that merely differ from layer to layer recur in the next step.
Variance variance_of(const DeviceEvidence& d) {
  std::unordered_map<uint32_t, Sizes> stacks;
  for (const Allocation& a : d.model->allocations) {
    if (a.seeded || a.block_bytes <= kSmallBytes || a.stack == 0) continue;
    Sizes& s = stacks[a.stack];
    ++s.count;
    s.bytes += a.block_bytes;
    if (s.different.size() < 64) s.different.insert(a.block_bytes);
  }
  Variance v;
  uint64_t most = 0;
  for (const auto& [stack, s] : stacks) {
    v.all_bytes += s.bytes;
    const uint64_t beats = std::min<uint64_t>(s.count, std::max<uint64_t>(d.steps.count(), 1));
    if (s.count < kLeastReturns || beats < kLeastReturns) continue;
    if (s.different.size() < std::min<uint64_t>(beats * 2 / 5 + 1, 32)) continue;
    v.bytes += s.bytes;
    v.most_sizes = std::max<uint64_t>(v.most_sizes, s.different.size());
    if (s.bytes > most || (s.bytes == most && stack < v.stack)) {
      most = s.bytes;
      v.stack = stack;
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
    Finding f =
        d.finding("shape_variance", matters ? kWarning : kInfo,
                  fmt::format("allocation sizes change from step to step ({} sizes from one "
                              "line): the reserved peak is {} above the allocated peak",
                              grouped(v.most_sizes), size_text(cost)));
    f.evidence = {{"sizes", v.most_sizes},
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
