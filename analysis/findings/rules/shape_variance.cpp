// The same lines request different sizes every time, so that cached blocks can rarely be reused.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include "analysis/findings/advice.h"
#include "analysis/findings/rules.h"
#include "analysis/wording.h"
#include "proto/base/hash.h"

namespace tidemark {

namespace {

constexpr uint64_t kLeastReturns = 6;
constexpr size_t kLeastSizes = 3;
constexpr uint32_t kMostSteps = 1000;  // of one stack; more are not needed to tell

// The sizes that one stack requests in each step. How often it requests them does not matter: a
// loop that runs longer reuses the same blocks.
struct Sizes {
  uint64_t bytes = 0;
  uint32_t steps = 0;                      // in which it allocates
  uint32_t step = 0;                       // the last of them, from 1
  std::unordered_set<uint64_t> sizes;      // in that step
  std::unordered_set<uint64_t> sums;       // of their hashes, of earlier steps
  std::unordered_set<uint64_t> different;  // of all steps, up to kLeastSizes
  uint64_t total = 0;                      // requested in the last step
  uint64_t total_before = 0;
  bool only_grows = true;
  bool stays = false;  // beyond its step

  void begin(uint32_t next) {
    if (step != 0) finish();
    step = next;
    sizes.clear();
    total = 0;
    ++steps;
  }
  void finish() {
    uint64_t sum = 0;
    for (const uint64_t size : sizes) {
      sum += hash_word(0, size);
      if (different.size() < kLeastSizes) different.insert(size);
    }
    sums.insert(sum);
    only_grows = only_grows && total > total_before;
    total_before = total;
  }
  // A cache to which every step adds is as long as it must be.
  bool is_cache() const { return only_grows && stays; }
  bool varies() const {
    return steps >= kLeastReturns && sums.size() >= steps * 2 / 5 + 1 &&
           different.size() >= kLeastSizes && !is_cache();
  }
};

struct Variance {
  uint64_t bytes = 0;      // requested by stacks whose sizes vary
  uint64_t growing = 0;    // of them, by those that need more in each step than in the one before
  uint64_t all_bytes = 0;  // requested by all stacks
  uint64_t sizes = 0;      // of a step, as the stack below has them
  uint64_t steps = 0;      // in which it allocates
  uint32_t stack = 0;      // of those with a line of the program, the one that requested most
};

// Whether the same place in the step has another size in most steps. Layers whose sizes differ
// request the same ones in the next step.
Variance variance_of(const DeviceEvidence& d) {
  const AllocationColumns& allocations = d.model->allocations;
  std::vector<Sizes> stacks(d.process->names.stack_count());
  std::vector<uint32_t> noted(allocations.kinds().size());  // in which step, by kind
  uint32_t step = 0;
  for (size_t row = 0; row < allocations.size(); ++row) {
    const Allocation& a = allocations[row];
    while (step < d.steps.boundaries.size() && d.steps.boundaries[step] <= a.birth) ++step;
    if (a.seeded || a.block_bytes <= kSmallBytes || a.stack == 0 || step == 0) continue;
    if (a.stack >= stacks.size()) continue;  // its block of the file is damaged
    Sizes& s = stacks[a.stack];
    s.bytes += a.block_bytes;
    if (s.step != step && s.steps == kMostSteps) continue;
    if (s.step != step) s.begin(step);
    s.total += a.asked_bytes();
    s.stays = s.stays || (step < d.steps.boundaries.size() && a.release > d.steps.boundaries[step]);
    if (std::exchange(noted[allocations.kind(row)], step) != step) s.sizes.insert(a.asked_bytes());
  }
  Variance v;
  uint64_t most = 0;
  for (uint32_t stack = 0; stack < stacks.size(); ++stack) {
    Sizes& s = stacks[stack];
    if (s.steps == 0) continue;
    v.all_bytes += s.bytes;
    s.finish();
    if (!s.varies()) continue;
    v.bytes += s.bytes;
    if (s.only_grows) v.growing += s.bytes;
    const bool named = d.roles->of(stack) != StackRole::kBackward;
    const uint64_t weight = named ? s.bytes : 1;
    if (weight > most) {
      most = weight;
      v.stack = stack;
      v.sizes = s.sums.size();
      v.steps = s.steps;
    }
  }
  return v;
}

// Sizes of requests if every step had those of the largest. Of one stack with equally many requests
// in several steps, the first ones are the same request, and so are the second ones.
class FixedSizes {
 public:
  explicit FixedSizes(const DeviceEvidence& d) : d_(d) {
    for (size_t step = 0; step < d_.steps.boundaries.size(); ++step) {
      load(step);
      for (const auto& [stack, rows] : rows_) {
        std::vector<uint64_t>& largest = largest_[{stack, rows.size()}];
        largest.resize(rows.size());
        for (size_t k = 0; k < rows.size(); ++k) {
          largest[k] = std::max(largest[k], d_.model->allocations.asked_bytes(rows[k]));
        }
      }
    }
    begin_ = end_ = 0;
  }

  // Of an allocation, in the order of birth; 0: it is in no step.
  uint64_t of(uint32_t row) {
    const auto& boundaries = d_.steps.boundaries;
    if (row >= end_) {
      const uint32_t birth = d_.model->allocations.birth(row);
      const auto next = std::upper_bound(boundaries.begin(), boundaries.end(), birth);
      if (next == boundaries.begin()) return 0;
      load(static_cast<size_t>(next - boundaries.begin()) - 1);
      sizes_.assign(end_ - begin_, 0);
      for (const auto& [stack, rows] : rows_) {
        const std::vector<uint64_t>& largest = largest_.at({stack, rows.size()});
        for (size_t k = 0; k < rows.size(); ++k) sizes_[rows[k] - begin_] = largest[k];
      }
    }
    return row < begin_ ? 0 : sizes_[row - begin_];
  }

 private:
  void load(size_t step) {
    const auto& boundaries = d_.steps.boundaries;
    begin_ = first_born_at(boundaries[step]);
    end_ = step + 1 < boundaries.size() ? first_born_at(boundaries[step + 1])
                                        : static_cast<uint32_t>(d_.model->allocations.size());
    rows_.clear();
    for (uint32_t row = begin_; row < end_; ++row) {
      rows_[d_.model->allocations.stack(row)].push_back(row);
    }
  }

  uint32_t first_born_at(uint32_t event) const {
    uint32_t low = 0;
    uint32_t high = static_cast<uint32_t>(d_.model->allocations.size());
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      d_.model->allocations.birth(middle) < event ? low = middle + 1 : high = middle;
    }
    return low;
  }

  const DeviceEvidence& d_;
  std::map<std::pair<uint32_t, size_t>, std::vector<uint64_t>> largest_;  // by stack and number
  std::map<uint32_t, std::vector<uint32_t>> rows_;  // of the loaded step, by stack
  std::vector<uint64_t> sizes_;                     // of the loaded step
  uint32_t begin_ = 0;                              // its rows
  uint32_t end_ = 0;
};

uint64_t saved_by_padding(const DeviceEvidence& d, size_t devices) {
  FixedSizes sizes(d);
  const auto pad = [&](uint32_t allocation, RequestedBlock& request) {
    const uint64_t bytes = allocation == kNever ? 0 : sizes.of(allocation);
    if (bytes != 0) request.bytes = bytes;
    return true;
  };
  return saved_by_change(d, devices, pad).value_or(0);
}

}  // namespace

void find_shape_variance(const Evidence& evidence, std::vector<Finding>& out) {
  constexpr uint64_t kWorthSaying = uint64_t{64} << 20;
  constexpr uint64_t kMatters = 10;  // one part in so many of what is reserved
  constexpr uint64_t kMattersWithRoom = 5;
  for (const DeviceEvidence& d : evidence.devices) {
    if (!d.has_caching_allocator() || d.steps.count() < kLeastReturns) continue;
    const Variance v = variance_of(d);
    if (v.bytes == 0 || v.bytes < v.all_bytes / 3) continue;
    const uint64_t reserved = d.model->reserved_peak.bytes;
    const uint64_t cost = reserved - std::min(reserved, d.peak_bytes());
    // At best, nothing of it would be reserved.
    if (cost < kWorthSaying || cost < reserved / kMatters) continue;
    const size_t devices = evidence.devices.size();
    const uint64_t padded = saved_by_padding(d, devices);
    std::optional<Advice> settings = change_allocator(d, devices);
    const uint64_t saved = std::max(padded, settings ? settings->saves_bytes : 0);
    if (saved < kWorthSaying || saved < reserved / kMatters) continue;
    if (d.has_room() && saved < reserved / kMattersWithRoom) continue;
    const bool grows = 2 * v.growing > v.bytes;
    Finding f = d.finding(
        "shape_variance", d.is_tight() ? kWarning : kInfo,
        fmt::format(
            "{} (one line has {} different ones in {} steps): the reserved peak is {} above "
            "the allocated peak",
            grows ? "each step asks for larger blocks than the one before, so that no cached "
                    "block is large enough"
                  : "allocation sizes change from step to step",
            grouped(v.sizes), grouped(v.steps), size_text(cost)));
    f.evidence = {{"sizes", v.sizes},
                  {"varying_bytes", v.bytes},
                  {"requested_bytes", v.all_bytes},
                  {"peak_cost_bytes", cost}};
    f.frames = d.process->names.stack_text(v.stack);
    std::string text =
        grows
            ? "run the largest steps first, or round sizes up to a few fixed "
              "ones, so that cached blocks can be reused"
            : "round the sizes that vary (of sequences, of routed tokens) up to a few fixed ones, "
              "or run the largest first, so that cached blocks can be reused";
    // Padded steps need more memory themselves: a small difference may have the other sign.
    const bool clear = padded >= reserved / kMatters;
    text += clear
                ? fmt::format(": saves up to {}, estimated with every step as large as the largest",
                              size_text(padded))
                : "; padded steps need more memory themselves, so that this may save little";
    f.advice.push_back({"pad_shapes", std::move(text), clear ? padded : 0});
    add(f.advice, std::move(settings));
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
