#include "analysis/findings/growth/sawtooth.h"

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
  uint32_t last = 0;
};

// Python's collector frees what many steps left in reference cycles at once, in the middle of
// whatever the program does then. A list that the program clears is freed at one place, and often
// every so many steps.
enum class Freed : uint8_t { kOneByOne, kByProgram, kAnywhere };

struct Clearings {
  Freed how = Freed::kOneByOne;
  size_t count = 0;   // steps in which the blocks of several steps were freed
  size_t period = 0;  // of those at one place, in steps; 0: they are irregular, or too few
};

bool is_large(const Burst& burst) {
  constexpr size_t kLeastSteps = 4;
  return burst.steps.size() >= kLeastSteps;
}

// Where in the program something is freed: the stacks of what was allocated last, and of what is
// allocated next. What the program does before or after it may differ, as a validation does that
// comes now and then.
class ClearingPlaces {
 public:
  void add(const AllocationHistory& model, const Burst& first, const Burst& last) {
    const size_t before = first_born_after(model, first.first);
    const size_t after = first_born_after(model, last.last);
    if (before != 0) before_.insert(model.allocations.stack(before - 1));
    if (after < model.allocations.size()) after_.insert(model.allocations.stack(after));
  }
  bool is_one() const { return before_.size() <= 1 || after_.size() <= 1; }

 private:
  std::set<uint32_t> before_;
  std::set<uint32_t> after_;
};

size_t period_of(const std::vector<size_t>& steps) {
  constexpr size_t kLeastClearings = 4;
  if (steps.size() < kLeastClearings) return 0;
  const size_t period = steps[1] - steps[0];
  for (size_t i = 2; i < steps.size(); ++i) {
    if (steps[i] - steps[i - 1] != period) return 0;
  }
  return period;
}

// Several lists that are cleared one after the other in the same step count as one.
Clearings clearings_of(const DeviceEvidence& d, const std::vector<Burst>& bursts) {
  constexpr size_t kLeastClearings = 2;
  std::vector<size_t> steps;
  ClearingPlaces places;
  size_t large = 0;
  for (size_t i = 0; i < bursts.size();) {
    if (!is_large(bursts[i])) {
      ++i;
      continue;
    }
    const size_t step = d.steps.before_event(bursts[i].first);
    size_t last = i;
    size_t next = i;
    for (; next < bursts.size() && d.steps.before_event(bursts[next].first) == step; ++next) {
      if (!is_large(bursts[next])) continue;
      ++large;
      last = next;
    }
    steps.push_back(step);
    places.add(*d.model, bursts[i], bursts[last]);
    i = next;
  }
  if (steps.size() < kLeastClearings || large * 2 < bursts.size()) return {};
  const size_t period = period_of(steps);
  if (!places.is_one() && period == 0) return {Freed::kAnywhere, steps.size(), 0};
  return {Freed::kByProgram, steps.size(), places.is_one() ? period : 0};
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
        held.bursts.push_back({{}, release, release});
        const size_t born = first_born_after(*d.model, release);
        next = born < allocations.size() ? allocations.birth(born) : kNever;
      }
      held.bursts.back().last = release;
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

void add_cycle(const DeviceEvidence& d, uint32_t stack, const Outliving& held, size_t clearings,
               std::vector<Finding>& out) {
  const uint64_t saved = saved_at_ends_of_steps(d, held.rows);
  if (saved == 0 || saved < d.peak_bytes() / 20) return;
  Finding f = d.finding("creep", kInfo,
                        fmt::format("memory of many steps is freed at once, {} times and at "
                                    "different places, as Python's cycle collector does",
                                    grouped(clearings)));
  f.evidence = {{"bursts", clearings}, {"blocks", held.rows.size()}};
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
    const Clearings clearings = clearings_of(d, held.bursts);
    if (clearings.how == Freed::kAnywhere) add_cycle(d, stack, held, clearings.count, out);
  }
}

// What lines of the program and of its model leave until the program frees it. A program that
// serves keeps what its running requests need: keys and values of each layer.
void find_collected(const DeviceEvidence& d, std::vector<Finding>& out) {
  if (!may_be_searched(d)) return;
  std::vector<uint32_t> rows;
  std::map<uint32_t, uint64_t> bytes;
  std::map<uint32_t, Clearings> clearings;
  for (const auto& [stack, held] : outliving_by_stack(d)) {
    const StackRole role = d.roles->of(stack);
    if (role != StackRole::kForward && role != StackRole::kUser) continue;
    const Clearings of_stack = clearings_of(d, held.bursts);
    if (of_stack.how != Freed::kByProgram) continue;
    if (!d.categories.has_backward && !is_one_of_each_step(held)) continue;
    if (is_used_by_backward(d, held.bursts.front().first)) continue;
    for (const uint32_t i : held.rows) bytes[stack] += d.model->allocations.block_bytes(i);
    rows.insert(rows.end(), held.rows.begin(), held.rows.end());
    rows.insert(rows.end(), held.left.begin(), held.left.end());
    clearings[stack] = of_stack;
  }
  if (rows.empty()) return;
  const uint64_t saved = saved_at_ends_of_steps(d, rows);
  if (saved == 0 || saved < d.peak_bytes() / 10) return;
  const uint32_t stack = largest_stack(bytes);
  const auto [how, count, period] = clearings[stack];
  Finding f = d.finding(
      "creep", kInfo,
      fmt::format("memory of many steps is kept and then freed at once, {} times", grouped(count)));
  f.evidence = {{"bursts", count}, {"blocks", rows.size()}};
  f.frames = d.process->names.stack_text(stack);
  const std::string place = place_of(f.frames);
  std::string text = fmt::format(
      "something keeps what {} allocates, as a list does that is cleared now and then, or objects "
      "that refer to each other until they are collected: if it need not stay on the card, keep "
      "less of it or move it to host memory",
      place);
  if (period != 0) {
    f.summary += fmt::format(": every {} steps", grouped(period));
    f.evidence.emplace_back("period_steps", period);
    text = fmt::format(
        "something keeps what {} allocates, as a list does that is cleared every {} steps: keep "
        "only what is needed of each step (a sum, a mean), clear it more often, or move it to "
        "host memory",
        place, grouped(period));
  }
  text += fmt::format(": saves {}", size_text(saved));
  f.advice.push_back({"keep_less", std::move(text), saved});
  out.push_back(std::move(f));
}

}  // namespace tidemark
