#include "analysis/findings/causes/unusual_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "analysis/history/rehearsal.h"
#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kUnusual = 4;      // times the usual size
constexpr uint64_t kLeastCalls = 20;  // to know what is usual
constexpr uint64_t kRare = 20;        // one call in so many, or fewer, is as large
constexpr uint64_t kFewPasses = 4;    // tell at an error, if none was nearly as large

// The largest block of each line of a model that is alive at an event, with the request that
// failed.
std::unordered_map<uint32_t, uint64_t> largest_at(const DeviceEvidence& d, uint32_t event) {
  const AllocationColumns& all = d.model->allocations;
  std::unordered_map<uint32_t, uint64_t> largest;
  const auto add = [&](uint32_t stack, uint64_t bytes) {
    if (bytes <= kSmallBytes || d.roles->caller_of(stack) == 0) return;
    largest[stack] = std::max(largest[stack], bytes);
  };
  for (size_t i = 0; i < all.size() && all.birth(i) <= event; ++i) {
    if (all.release(i) <= event || d.categories.of[i] == Category::kWorkspace) continue;
    add(all.stack(i), all.asked_bytes(i));
  }
  if (d.ran_out()) add(d.model->failures.back().stack, d.model->failures.back().requested_bytes);
  return largest;
}

// How often a line asked for each size.
using Sizes = std::map<uint64_t, uint64_t>;

std::unordered_map<uint32_t, Sizes> sizes_of_lines(const DeviceEvidence& d) {
  const AllocationColumns& all = d.model->allocations;
  std::vector<uint64_t> counts(all.kinds().size());
  for (size_t i = 0; i < all.size(); ++i) ++counts[all.kind(i)];
  std::unordered_map<uint32_t, Sizes> sizes;
  for (size_t kind = 0; kind < counts.size(); ++kind) {
    const AllocationKind& k = all.kinds()[kind];
    if (d.roles->caller_of(k.stack) != 0) sizes[k.stack][k.asked_bytes()] += counts[kind];
  }
  return sizes;
}

// Without calls of another kind, such as the tokens after a prompt that the same line reads: they
// are tiny beside several others, and nothing is in between. Nothing: the others are too few to
// know.
Sizes without_tiny(const Sizes& sizes) {
  constexpr uint64_t kApart = 8;  // times as large as the next size
  constexpr uint64_t kSeveral = 4;
  uint64_t calls = 0;
  for (auto size = sizes.end(); size != sizes.begin();) {
    --size;
    calls += size->second;
    if (calls < kSeveral || size == sizes.begin()) continue;
    if (size->first < kApart * std::prev(size)->first) continue;
    return calls < kLeastCalls ? Sizes{} : Sizes(size, sizes.end());
  }
  return sizes;
}

// The size that half of the calls do not exceed, if calls for half of `bytes` are rare; 0
// otherwise.
uint64_t usual_size(const Sizes& all, uint64_t bytes) {
  const Sizes sizes = without_tiny(all);
  uint64_t calls = 0;
  uint64_t large = 0;
  for (const auto& [size, count] : sizes) {
    calls += count;
    if (size >= bytes / 2) large += count;
  }
  if (calls < kLeastCalls || large > calls / kRare) return 0;
  uint64_t seen = 0;
  for (const auto& [size, count] : sizes) {
    seen += count;
    if (2 * seen >= calls) return size;
  }
  return 0;
}

// The largest block of a line in the passes of its model before the last one; 0: there were few.
// The layers of one pass have sizes of their own.
uint64_t largest_before(const DeviceEvidence& d, uint32_t stack) {
  const AllocationColumns& all = d.model->allocations;
  uint32_t caller = 0;
  uint64_t passes = 0;
  uint64_t now = 0;
  uint64_t before = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const uint32_t calls = d.roles->caller_of(all.stack(i));
    if (calls != caller && now != 0) {
      before = std::max(before, now);
      ++passes;
      now = 0;
    }
    caller = calls;
    if (all.stack(i) == stack) now = std::max(now, all.asked_bytes(i));
  }
  return passes >= kFewPasses ? before : 0;
}

// What is usual for a line that made a block of `bytes`; 0: not known, or this is.
uint64_t usual_for(const DeviceEvidence& d, const std::unordered_map<uint32_t, Sizes>& sizes,
                   uint32_t stack, uint64_t bytes) {
  const auto of_stack = sizes.find(stack);
  if (of_stack == sizes.end()) return 0;
  uint64_t calls = 0;
  for (const auto& [size, count] : of_stack->second) calls += count;
  const bool few = d.ran_out() && calls < kLeastCalls;
  const uint64_t usual = few ? largest_before(d, stack) : usual_size(of_stack->second, bytes);
  return bytes >= kUnusual * usual ? usual : 0;
}

// Ends of the steps with a request as unusual as the one that made a block of `bytes` at `event`.
std::unordered_set<uint32_t> unusual_steps(const DeviceEvidence& d, uint32_t stack, uint64_t bytes,
                                           uint32_t event) {
  std::unordered_set<uint32_t> ends = {d.steps.end_of_step(event)};
  for (const Allocation& a : d.model->allocations) {
    if (a.stack == stack && a.asked_bytes() >= bytes / 2) {
      ends.insert(d.steps.end_of_step(a.birth));
    }
  }
  return ends;
}

// At the peak, if the requests of these steps that a line runs were as large as the usual ones.
// Usual ones need what they need: also their largest.
uint64_t saved_if_usual(const DeviceEvidence& d, const std::unordered_map<uint32_t, Sizes>& sizes,
                        uint32_t caller, const std::unordered_set<uint32_t>& steps) {
  std::unordered_map<uint32_t, uint64_t> usual;
  for (const auto& [stack, of_stack] : sizes) {
    if (d.roles->caller_of(stack) != caller) continue;
    usual[stack] = usual_for(d, sizes, stack, of_stack.rbegin()->first);
  }
  Rehearsal bounded(*d.model);
  for (const Allocation& a : d.model->allocations) {
    const auto size = usual.find(a.stack);
    if (size == usual.end() || size->second == 0) continue;
    if (a.asked_bytes() < kUnusual * size->second) continue;
    if (!steps.contains(d.steps.end_of_step(a.birth))) continue;
    bounded.leave_out(a,
                      1 - static_cast<double>(size->second) / static_cast<double>(a.asked_bytes()));
  }
  return bounded.saved_bytes();
}

}  // namespace

std::optional<UnusualRequest> unusual_request(const DeviceEvidence& d) {
  if (d.model == nullptr || d.model->event_count() == 0 || d.categories.has_backward) {
    return std::nullopt;
  }
  const uint32_t event =
      d.ran_out() ? d.model->failures.back().event : d.model->allocated_peak.event;
  const std::unordered_map<uint32_t, Sizes> sizes = sizes_of_lines(d);
  UnusualRequest found;
  uint32_t line = 0;  // that made its largest block
  for (const auto& [stack, bytes] : largest_at(d, event)) {
    const uint64_t usual = usual_for(d, sizes, stack, bytes);
    if (usual == 0) continue;
    const uint32_t caller = d.roles->caller_of(stack);
    if (bytes < found.bytes || (bytes == found.bytes && caller > found.stack)) continue;
    found = {caller, bytes, usual, 0};
    line = stack;
  }
  if (found.stack == 0) return std::nullopt;
  found.saved_bytes =
      saved_if_usual(d, sizes, found.stack, unusual_steps(d, line, found.bytes, event));
  if (!d.ran_out()) {
    return found.saved_bytes >= d.peak_bytes() / 10 ? std::optional(found) : std::nullopt;
  }
  // What failed is part of it, or would have fitted without it: the logits of a long prompt are
  // there when their softmax fails.
  const FailedAllocation& failure = d.model->failures.back();
  const bool matters =
      d.roles->caller_of(failure.stack) == found.stack || found.bytes >= failure.requested_bytes;
  return matters ? std::optional(found) : std::nullopt;
}

std::string unusual_text(const UnusualRequest& request) {
  return fmt::format("one request asked for {} times the usual size ({}, usually {})",
                     grouped(request.times()), size_text(request.bytes),
                     size_text(request.usual_bytes));
}

Advice bound_request(const DeviceEvidence& d, const UnusualRequest& request) {
  // Of one that failed, little was recorded.
  const std::string saves =
      d.ran_out()                ? fmt::format(": {} instead of {}", size_text(request.usual_bytes),
                                               size_text(request.bytes))
      : request.saved_bytes == 0 ? ""
                                 : ": saves about " + size_text(request.saved_bytes);
  return {
      "bound_request",
      fmt::format("bound the size of a request (its length, its batch) before {} runs it, or run "
                  "a large one in parts of the usual size, as chunked prefill does{}",
                  place_of(d.process->names.stack_text(request.stack)), saves),
      request.saved_bytes};
}

}  // namespace tidemark
