// A few blocks of one operation, far larger than what the rest of the program computes, are the
// largest part of the peak: logits of a large vocabulary, an attention matrix, a broadcast.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "analysis/findings/rules.h"
#include "analysis/history/rehearsal.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kWorthSaying = uint64_t{64} << 20;
// Times the size of the largest other block. A layer's hidden state is four times its input.
constexpr uint64_t kOutlier = 5;
constexpr uint32_t kBriefBirths = 64;  // a cache of keys and values lives longer
constexpr uint64_t kChunks = 16;


// One operation's results have one shape, in one precision or two.
bool of_one_shape(uint64_t bytes, uint64_t largest) {
  const auto is_near = [&](uint64_t b) { return b <= largest && b >= largest - largest / 32; };
  return is_near(bytes) || is_near(2 * bytes);
}

struct Operation {
  uint64_t largest_bytes = 0;  // of its blocks
  uint64_t bytes = 0;          // at the peak
  uint64_t blocks = 0;
  uint64_t others_bytes = 0;   // of everything else but weights, gradients and states
  uint64_t next_bytes = 0;     // of the largest other block that was computed
  uint32_t stack = 0;
};

class Search {
 public:
  explicit Search(const DeviceEvidence& d) : d_(d) {}

  // Whether a block is the result of a computation, and not input, a cache or a collection.
  bool is_computed(size_t i) const {
    const Allocation a = d_.model->allocations[i];
    const Category category = d_.categories.of[i];
    if (a.seeded || is_of_model(category) || category == Category::kCommunication) return false;
    if (d_.roles->of(a.stack) == StackRole::kData) return false;
    if (d_.categories.has_backward) return !outlives_step(a);
    return a.release != kNever && a.release - a.birth < 3 * kBriefBirths;
  }

  Operation run() const {
    const uint32_t peak = d_.model->allocated_peak.event;
    std::vector<size_t> live;
    Operation found;
    for (size_t i = 0; i < d_.model->allocations.size(); ++i) {
      const AllocationColumns& all = d_.model->allocations;
      if (all.birth(i) > peak) break;
      if (all.release(i) <= peak || all.seeded(i) || is_of_model(d_.categories.of[i])) continue;
      if (!is_computed(i)) {
        found.others_bytes += all.block_bytes(i);
        continue;
      }
      live.push_back(i);
      found.largest_bytes = std::max(found.largest_bytes, all.block_bytes(i));
    }
    describe(live, found);
    return found;
  }

 private:
  static bool is_of_model(Category category) {
    return category == Category::kParameter || category == Category::kGradient ||
           category == Category::kOptimizerState;
  }
  bool outlives_step(const Allocation& a) const {
    const uint32_t end = d_.steps.end_of_step(a.birth);
    const uint32_t next = end == kNever ? kNever : d_.steps.end_of_step(end);
    return next != kNever && a.release > next;
  }

  void describe(const std::vector<size_t>& live, Operation& found) const {
    const AllocationColumns& all = d_.model->allocations;
    std::unordered_map<uint32_t, uint64_t> by_stack;
    for (const size_t i : live) {
      const uint64_t bytes = all.block_bytes(i);
      if (!of_one_shape(bytes, found.largest_bytes)) {
        found.next_bytes = std::max(found.next_bytes, bytes);
        found.others_bytes += bytes;
        continue;
      }
      found.bytes += bytes;
      ++found.blocks;
      by_stack[all.stack(i)] += bytes;
    }
    // A line of the program says more than an operation of the backward pass.
    uint64_t most = 0;
    for (const auto& [stack, bytes] : by_stack) {
      const bool named = d_.roles->of(stack) != StackRole::kBackward;
      const uint64_t weight = named ? bytes + found.bytes : bytes;
      if (weight < most || (weight == most && stack > found.stack)) continue;
      most = weight;
      found.stack = stack;
    }
  }

  const DeviceEvidence& d_;
};

}  // namespace

void find_one_operation_peak(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model == nullptr || d.model->event_count() == 0) continue;
    const Search search(d);
    const Operation o = search.run();
    if (getenv("OOP") != nullptr) {
      fmt::print(stderr, "peak {} largest {} x{} = {} others {} next {} ratio {:.1f}\n",
                 size_text(d.peak_bytes()), size_text(o.largest_bytes), o.blocks,
                 size_text(o.bytes), size_text(o.others_bytes), size_text(o.next_bytes),
                 double(o.largest_bytes) / double(std::max<uint64_t>(o.next_bytes, 1)));
    }
    if (o.bytes < kWorthSaying || o.bytes < d.peak_bytes() / 4 || o.bytes < o.others_bytes) continue;
    if (o.next_bytes == 0 || o.largest_bytes < kOutlier * o.next_bytes) continue;
    Rehearsal without(*d.model);
    for (size_t i = 0; i < d.model->allocations.size(); ++i) {
      if (!of_one_shape(d.model->allocations.block_bytes(i), o.largest_bytes)) continue;
      if (search.is_computed(i)) without.leave_out(d.model->allocations[i]);
    }
    const uint64_t saved = without.saved_bytes();
    Finding f = d.finding("one_operation_peak", kWarning,
                          fmt::format("one operation holds {} of the peak: {} of up to {}",
                                      percent_text(o.bytes, d.peak_bytes()),
                                      counted(o.blocks, "block"), size_text(o.largest_bytes)));
    f.evidence = {{"bytes", o.bytes},
                  {"blocks", o.blocks},
                  {"largest_block_bytes", o.largest_bytes},
                  {"next_block_bytes", o.next_bytes},
                  {"allocated_peak_bytes", d.peak_bytes()}};
    f.frames = d.process->names.stack_text(o.stack);
    f.advice.push_back({"split_operation", fmt::format("saves {}", size_text(saved)), saved});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
