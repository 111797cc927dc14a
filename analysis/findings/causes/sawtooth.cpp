#include "analysis/findings/causes/sawtooth.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

#include "analysis/findings/largest_stack.h"
#include "analysis/history/rehearsal.h"
#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

// The first allocation after an event.
size_t first_born_after(const AllocationHistory& model, uint32_t event) {
  return births_within(model, event + 1, kNever).begin;
}

// Blocks of one stack that were freed together, with nothing allocated in between.
struct Burst {
  std::set<uint32_t> steps;  // in which they were allocated
  uint32_t first = 0;        // event of the first release
};

// Python's collector frees what many steps left in reference cycles at once, in the middle of
// whatever the program does then. A list that the program clears is freed at one place.
enum class Freed : uint8_t { kOneByOne, kAtOnePlace, kAnywhere };

bool is_large(const Burst& burst) {
  constexpr size_t kLeastSteps = 4;
  return burst.steps.size() >= kLeastSteps;
}

Freed how_freed(const DeviceEvidence& d, const std::vector<Burst>& bursts) {
  constexpr size_t kLeastBursts = 2;
  size_t large = 0;
  std::set<uint32_t> places;  // stacks of what is allocated next
  for (const Burst& burst : bursts) {
    if (!is_large(burst)) continue;
    ++large;
    const size_t next = first_born_after(*d.model, burst.first);
    if (next < d.model->allocations.size()) places.insert(d.model->allocations.stack(next));
  }
  if (large < kLeastBursts || large * 2 < bursts.size()) return Freed::kOneByOne;
  return places.size() >= kLeastBursts ? Freed::kAnywhere : Freed::kAtOnePlace;
}

// Blocks of one stack that outlive their step.
struct Outliving {
  std::vector<uint32_t> rows;  // in the order of their ends
  std::vector<uint32_t> left;  // that were not freed
  std::vector<Burst> bursts;
};

bool is_used_by_backward(const DeviceEvidence& d, uint32_t release) {
  const auto after =
      std::upper_bound(d.backward_passes.begin(), d.backward_passes.end(), release,
                       [](uint32_t event, const BackwardPass& pass) { return event < pass.first; });
  return after != d.backward_passes.begin() && release <= std::prev(after)->last;
}

std::map<uint32_t, Outliving> outliving_by_stack(const DeviceEvidence& d) {
  const auto& allocations = d.model->allocations;
  std::map<uint32_t, Outliving> by_stack;
  for (uint32_t i = 0; i < allocations.size(); ++i) {
    const Allocation& a = allocations[i];
    if (a.seeded || a.stack == 0 || a.block_bytes <= kSmallBytes) continue;
    const uint32_t end = d.steps.end_of_step(a.birth);
    if (end == kNever || a.release <= end) continue;
    Outliving& held = by_stack[a.stack];
    (a.release == kNever ? held.left : held.rows).push_back(i);
  }
  for (auto& [stack, held] : by_stack) {
    std::sort(held.rows.begin(), held.rows.end(), [&](uint32_t a, uint32_t b) {
      return allocations.release(a) < allocations.release(b);
    });
    uint32_t next = 0;  // event of the next birth after the current burst
    for (const uint32_t i : held.rows) {
      const uint32_t release = allocations.release(i);
      if (held.bursts.empty() || release > next) {
        held.bursts.push_back({{}, release});
        const size_t born = first_born_after(*d.model, release);
        next = born < allocations.size() ? allocations.birth(born) : kNever;
      }
      held.bursts.back().steps.insert(d.steps.end_of_step(allocations.birth(i)));
    }
  }
  return by_stack;
}

uint64_t saved_at_ends_of_steps(const DeviceEvidence& d, const std::vector<uint32_t>& rows) {
  Rehearsal freed(*d.model);
  for (const uint32_t i : rows) {
    freed.leave_out_from(d.model->allocations[i],
                         d.steps.end_of_step(d.model->allocations.birth(i)));
  }
  return freed.saved_bytes();
}

void add_cycle(const DeviceEvidence& d, uint32_t stack, const Outliving& held,
               std::vector<Finding>& out) {
  const uint64_t saved = saved_at_ends_of_steps(d, held.rows);
  if (saved == 0 || saved < d.peak_bytes() / 20) return;
  Finding f = d.finding("creep", kInfo,
                        fmt::format("memory of many steps is freed at once, {} times and at "
                                    "different places, as Python's cycle collector does",
                                    grouped(held.bursts.size())));
  f.evidence = {{"bursts", held.bursts.size()}, {"blocks", held.rows.size()}};
  f.frames = d.process->names.stack_text(stack);
  f.advice.push_back({"break_cycles",
                      fmt::format("break the reference cycle that keeps what {} allocates "
                                  "(objects that refer to each other): saves {}",
                                  place_of(f.frames), size_text(saved)),
                      saved});
  out.push_back(std::move(f));
}

bool is_one_of_each_step(const Outliving& held) {
  return std::accumulate(held.bursts.begin(), held.bursts.end(), size_t{0},
                         [](size_t sum, const Burst& b) { return sum + b.steps.size(); }) ==
         held.rows.size();
}

bool may_be_searched(const DeviceEvidence& d) {
  constexpr uint32_t kLeastSteps = 8;
  return d.model != nullptr && d.steps.count() >= kLeastSteps;
}

}  // namespace

void find_cycles(const DeviceEvidence& d, std::vector<Finding>& out) {
  if (!may_be_searched(d)) return;
  for (const auto& [stack, held] : outliving_by_stack(d)) {
    if (how_freed(d, held.bursts) == Freed::kAnywhere) add_cycle(d, stack, held, out);
  }
}

// What lines of the program and of its model leave until it is freed at one place. A program that
// serves keeps what its running requests need: keys and values of each layer.
void find_collected(const DeviceEvidence& d, std::vector<Finding>& out) {
  if (!may_be_searched(d)) return;
  std::vector<uint32_t> rows;
  std::map<uint32_t, uint64_t> bytes;
  size_t bursts = 0;
  for (const auto& [stack, held] : outliving_by_stack(d)) {
    const StackRole role = d.roles->of(stack);
    if (role != StackRole::kForward && role != StackRole::kUser) continue;
    if (how_freed(d, held.bursts) != Freed::kAtOnePlace) continue;
    if (!d.categories.has_backward && !is_one_of_each_step(held)) continue;
    if (is_used_by_backward(d, held.bursts.front().first)) continue;
    for (const uint32_t i : held.rows) bytes[stack] += d.model->allocations.block_bytes(i);
    rows.insert(rows.end(), held.rows.begin(), held.rows.end());
    rows.insert(rows.end(), held.left.begin(), held.left.end());
    const auto large = std::count_if(held.bursts.begin(), held.bursts.end(), is_large);
    bursts = std::max(bursts, static_cast<size_t>(large));
  }
  if (rows.empty()) return;
  const uint64_t saved = saved_at_ends_of_steps(d, rows);
  if (saved == 0 || saved < d.peak_bytes() / 10) return;
  Finding f = d.finding("creep", kInfo,
                        fmt::format("memory of many steps is kept and then freed at once, {} times",
                                    grouped(bursts)));
  f.evidence = {{"bursts", bursts}, {"blocks", rows.size()}};
  f.frames = d.process->names.stack_text(largest_stack(bytes));
  f.advice.push_back(
      {"keep_less",
       fmt::format(
           "something keeps what {} allocates, as a list does that is cleared now and then, "
           "or objects that refer to each other until they are collected: if it need not "
           "stay on the card, keep less of it or move it to host memory: saves {}",
           place_of(f.frames), size_text(saved)),
       saved});
  out.push_back(std::move(f));
}

}  // namespace tidemark
