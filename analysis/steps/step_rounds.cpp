#include "analysis/steps/step_rounds.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace tidemark {

std::vector<uint32_t> callers_before(const AllocationHistory& model, const StackRoles& roles,
                                     const std::vector<uint32_t>& marks) {
  std::vector<uint32_t> callers;
  uint32_t next = 0;
  uint32_t caller = 0;
  for (const uint32_t mark : marks) {
    for (; next < model.allocations.size() && model.allocations.birth(next) < mark; ++next) {
      const uint32_t stack = model.allocations.stack(next);
      if (roles.of(stack) == StackRole::kForward) caller = roles.caller_of(stack);
    }
    callers.push_back(caller);
  }
  return callers;
}

namespace {

// The length after which the callers repeat themselves; 0: they do not, or there is only one.
size_t period_of(const std::vector<uint32_t>& callers) {
  for (size_t period = 2; period * 2 <= callers.size(); ++period) {
    const auto later = callers.begin() + static_cast<std::ptrdiff_t>(period);
    if (std::equal(later, callers.end(), callers.begin())) {
      return std::all_of(callers.begin(), later, [&](uint32_t c) { return c == callers.front(); })
                 ? 0
                 : period;
    }
  }
  return 0;
}

// Where, modulo the period, rounds begin of which each has a block of one line of the program from
// its first pass to its last, but not into the next round: the round's batch.
std::set<size_t> beginnings_of_rounds(const AllocationHistory& model, const StackRoles& roles,
                                      const std::vector<uint32_t>& marks, size_t period) {
  std::map<std::pair<size_t, uint32_t>, std::set<size_t>> spanned;  // beginning, stack -> rounds
  for (const Allocation& a : model.allocations) {
    const StackRole role = roles.of(a.stack);
    if (a.seeded || (role != StackRole::kUser && role != StackRole::kData)) continue;
    const auto pass =
        static_cast<size_t>(std::upper_bound(marks.begin(), marks.end(), a.birth) - marks.begin());
    if (pass + period > marks.size() || a.release <= marks[pass + period - 2]) continue;
    const uint32_t next = pass + period < marks.size() ? marks[pass + period] : kNever;
    if (a.release <= next) spanned[{pass % period, a.stack}].insert(pass / period);
  }
  std::set<size_t> beginnings;
  for (const auto& [place, rounds] : spanned) {
    const size_t complete = (marks.size() - place.first) / period;
    if (rounds.size() == complete && complete >= 2) beginnings.insert(place.first);
  }
  return beginnings;
}

// Marks where there are none: the first event that is not an optimizer's after each one's step, as
// far as they allocate.
std::vector<uint32_t> ends_of_optimizers(const AllocationHistory& model, const StackRoles& roles) {
  std::vector<uint32_t> ends;
  bool steps = false;
  for (uint32_t a = 0; a < model.allocations.size(); ++a) {
    if (model.allocations.seeded(a)) continue;
    const bool optimizer = in_optimizer(roles.of(model.allocations.stack(a)));
    if (steps && !optimizer) ends.push_back(model.allocations.birth(a));
    steps = optimizer;
  }
  if (steps) ends.push_back(model.event_count());
  return ends;
}

}  // namespace

std::vector<uint32_t> boundaries_of_rounds(const AllocationHistory& model, const StackRoles& roles,
                                           std::vector<uint32_t> marks) {
  // A late history has only a part of its first pass, and not what that pass allocated first.
  const bool late = model.seeded_blocks != 0;
  if (late && !marks.empty()) marks.erase(marks.begin());
  const size_t period = period_of(callers_before(model, roles, marks));
  if (period == 0) return {};
  const std::set<size_t> beginnings = beginnings_of_rounds(model, roles, marks, period);
  if (beginnings.size() != 1) return {};
  // A batch that stays until another one takes its place seems to be of the pass that makes that
  // one, too. But a run begins with a whole round.
  const size_t first = late ? *beginnings.begin() : 0;
  std::vector<uint32_t> ends;
  for (size_t i = (first + period - 1) % period; i < marks.size(); i += period) {
    ends.push_back(marks[i]);
  }
  return ends;
}

void keep_rounds(const AllocationHistory& model, const StackRoles& roles,
                 std::vector<uint32_t>& loop) {
  const std::vector<uint32_t> ends =
      boundaries_of_rounds(model, roles, ends_of_optimizers(model, roles));
  if (ends.empty() || loop.empty()) return;
  std::vector<uint32_t> kept = {loop.front()};
  for (const uint32_t end : ends) {
    const auto next = std::lower_bound(loop.begin(), loop.end(), end);
    if (next != loop.end() && *next != kept.back()) kept.push_back(*next);
  }
  loop = std::move(kept);
}

}  // namespace tidemark
