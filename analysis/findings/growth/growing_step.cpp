#include "analysis/findings/growth/growing_step.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "analysis/history/minmax_pyramid.h"
#include "analysis/passes/backward_passes.h"

namespace tidemark {

namespace {

using Requests = std::unordered_map<uint32_t, std::vector<uint64_t>>;  // sizes, by stack

Requests requests_within(const DeviceEvidence& d, uint32_t first, uint32_t last) {
  const AllocationColumns& all = d.model->allocations;
  const BirthRange rows = births_within(*d.model, first, last);
  Requests requests;
  for (size_t i = rows.begin; i < rows.end; ++i) {
    if (d.roles->of(all.stack(i)) == StackRole::kForward) {
      requests[all.stack(i)].push_back(all.asked_bytes(i));
    }
  }
  return requests;
}

// The bytes of a step's requests, and of the same ones in the step before: of a line, the first is
// compared with the first, and so on.
struct Compared {
  uint64_t now = 0;
  uint64_t before = 0;
};

Compared compare(const Requests& now, const Requests& before) {
  Compared sums;
  for (const auto& [stack, sizes] : now) {
    const auto same = before.find(stack);
    if (same == before.end()) continue;
    for (size_t i = 0; i < std::min(sizes.size(), same->second.size()); ++i) {
      sums.now += sizes[i];
      sums.before += same->second[i];
    }
  }
  return sums;
}

// The allocations that a line made in one call of its model, one after the other.
struct Pass {
  size_t begin = 0;  // rows
  size_t end = 0;
  uint64_t bytes = 0;
};

// Up to the last error.
std::vector<Pass> passes_of_line(const DeviceEvidence& d, uint32_t line) {
  const AllocationColumns& all = d.model->allocations;
  const uint32_t failed = d.model->failures.back().event;
  std::vector<Pass> passes;
  for (size_t i = 0; i < all.size() && all.birth(i) <= failed; ++i) {
    if (d.roles->caller_of(all.stack(i)) != line) continue;
    if (passes.empty() || passes.back().end != i) passes.push_back({i, i, 0});
    passes.back().end = i + 1;
    passes.back().bytes += all.asked_bytes(i);
  }
  return passes;
}

// What the failing pass of a model needs, if what it has allocated tells: as many times the memory
// of the largest pass before it as its requests are times those.
uint64_t needs_of_pass(const DeviceEvidence& d) {
  const AllocationColumns& all = d.model->allocations;
  const FailedAllocation& failure = d.model->failures.back();
  const uint32_t line = d.roles->caller_of(failure.stack);
  if (line == 0) return 0;
  std::vector<Pass> passes = passes_of_line(d, line);
  if (passes.size() < 2) return 0;
  const Pass now = passes.back();
  passes.pop_back();
  const Pass& most = *std::max_element(
      passes.begin(), passes.end(), [](const Pass& a, const Pass& b) { return a.bytes < b.bytes; });
  const auto requests = [&](const Pass& p) {
    return requests_within(d, all.birth(p.begin), all.birth(p.end - 1) + 1);
  };
  const Compared sums = compare(requests(now), requests(most));
  if (sums.before == 0 || sums.now <= sums.before) return 0;
  const auto allocated_before = [&](const Pass& p) {
    const uint32_t first = all.birth(p.begin);
    return first == 0 ? 0 : d.model->totals_after(first - 1).allocated;
  };
  const uint64_t high = MinMaxPyramid(*d.model)
                            .extremes(all.birth(most.begin), all.birth(most.end - 1) + 1)
                            .max[static_cast<size_t>(Curve::kAllocated)];
  const double times = static_cast<double>(sums.now) / static_cast<double>(sums.before);
  const auto works = static_cast<double>(high - std::min(high, allocated_before(most)));
  return allocated_before(now) + static_cast<uint64_t>(works * times);
}

}  // namespace

bool outgrows_limit(const DeviceEvidence& d) {
  if (!d.ran_out()) return false;
  if (!d.categories.has_backward) return needs_of_pass(d) > d.limit.bytes;
  const std::optional<GrowingStep> growing = growing_step(d);
  return growing && growing->needed_bytes > d.limit.bytes;
}

std::optional<GrowingStep> growing_step(const DeviceEvidence& d) {
  constexpr uint64_t kLarger = 50;  // by one part in so many
  if (!d.ran_out() || !d.categories.has_backward) return std::nullopt;
  const auto& boundaries = d.steps.boundaries;
  const uint32_t failed = d.model->failures.back().event;
  const auto next = std::upper_bound(boundaries.begin(), boundaries.end(), failed);
  if (next - boundaries.begin() < 2) return std::nullopt;
  const uint32_t begin = *std::prev(next);
  // A step that failed before was tried again, and a validation has no step to compare with.
  const auto& failures = d.model->failures;
  const bool again = failures.size() > 1 && failures[failures.size() - 2].event >= begin;
  if (again || d.fails_in_validation()) return std::nullopt;
  const uint32_t before = *std::prev(next, 2);
  const Compared sums =
      compare(requests_within(d, begin, failed + 1), requests_within(d, before, begin));
  if (sums.before == 0 || sums.now <= sums.before + sums.before / kLarger) return std::nullopt;
  const StepLevels& level =
      d.steps.levels[static_cast<size_t>(std::prev(next, 2) - boundaries.begin())];
  GrowingStep step;
  step.times = static_cast<double>(sums.now) / static_cast<double>(sums.before);
  step.before_bytes = level.high_bytes;
  const auto works = static_cast<double>(level.high_bytes - level.low_bytes);
  step.needed_bytes = level.low_bytes + static_cast<uint64_t>(works * step.times);
  return step;
}

}  // namespace tidemark
