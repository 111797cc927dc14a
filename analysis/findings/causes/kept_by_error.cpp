#include "analysis/findings/causes/kept_by_error.h"

#include <algorithm>
#include <span>
#include <unordered_set>

#include "analysis/passes/backward_passes.h"
#include "analysis/steps/frames_in_model.h"

namespace tidemark {

namespace {

constexpr uint64_t kWorthSaying = uint64_t{8} << 20;

// How long the blocks of each line live that were freed, and how many of them are younger than the
// error.
struct Usual {
  uint32_t longest = 0;  // in events
  uint32_t since = 0;
};

bool computes(StackRole role) {
  return role == StackRole::kForward || role == StackRole::kBackward;
}

bool is_of_pass(Category category) {
  return category != Category::kParameter && category != Category::kGradient;
}

// The pass that failed.
struct FailedPass {
  std::vector<uint32_t> rows;  // alive when it failed
  uint32_t first_stack = 0;    // of the model
  uint32_t input_stack = 0;    // of the line outside the model that allocated before it
};

// Allocations of modules and of the backward pass, with what the program itself computes in
// between, from the error back to where one of their lines began before.
FailedPass failed_pass(const DeviceEvidence& d, const FailedAllocation& failure) {
  const AllocationColumns& all = d.model->allocations;
  FailedPass pass;
  std::unordered_set<uint32_t> begun;  // first stacks of what was computed without interruption
  uint32_t first = failure.stack;
  bool in_run = computes(d.roles->of(failure.stack));
  std::vector<uint32_t> run;
  const auto end_run = [&] {
    if (!in_run) return true;
    in_run = false;
    if (!begun.insert(first).second) return false;
    pass.rows.insert(pass.rows.end(), run.begin(), run.end());
    pass.first_stack = first;
    run.clear();
    return true;
  };
  for (size_t i = births_within(*d.model, 0, failure.event + 1).end; i-- > 0;) {
    const StackRole role = d.roles->of(all.stack(i));
    if (all.seeded(i) || in_optimizer(role)) break;
    if (!computes(role)) {
      if (!end_run()) return pass;
      pass.input_stack = all.stack(i);
      continue;
    }
    in_run = true;
    first = all.stack(i);
    if (all.release(i) > failure.event && is_of_pass(d.categories.of[i])) {
      run.push_back(static_cast<uint32_t>(i));
    }
  }
  end_run();
  return pass;
}

// Whether the program is in another pass when a later request fails: it has allocated outside its
// modules, or calls the model from another line, as a second try may, and the same line of the
// model, or the one before it, runs again. A module that computes in another way what did not fit
// goes on with the same pass.
bool begins_again(const DeviceEvidence& d, const FailedAllocation& failure, const FailedPass& pass,
                  const FailedAllocation& later) {
  const AllocationColumns& all = d.model->allocations;
  const Dictionary& names = d.process->names;
  const std::vector<uint32_t> first = frames_in_model(names, *d.roles, pass.first_stack);
  bool left = false;
  const auto is_again = [&](uint32_t stack) {
    const StackRole role = d.roles->of(stack);
    if (!computes(role)) {
      left = true;
      return stack == pass.input_stack;
    }
    if (role != StackRole::kForward) return false;
    const bool elsewhere = d.roles->caller_of(stack) != d.roles->caller_of(pass.first_stack);
    return (left || elsewhere) && frames_in_model(names, *d.roles, stack) == first;
  };
  const BirthRange between = births_within(*d.model, failure.event + 1, later.event + 1);
  for (size_t i = between.begin; i < between.end; ++i) {
    if (is_again(all.stack(i))) return true;
  }
  return is_again(later.stack);
}

std::unordered_map<uint32_t, Usual> usual_of(const DeviceEvidence& d,
                                             const FailedAllocation& failure,
                                             const FailedPass& pass) {
  const AllocationColumns& all = d.model->allocations;
  std::unordered_map<uint32_t, Usual> usual;
  for (const uint32_t row : pass.rows) usual.try_emplace(all.stack(row));
  for (size_t i = 0; i < all.size(); ++i) {
    const auto line = usual.find(all.stack(i));
    const bool of_pass = all.birth(i) <= failure.event && all.release(i) > failure.event;
    if (line == usual.end() || of_pass || all.release(i) == kNever) continue;
    line->second.longest = std::max(line->second.longest, all.release(i) - all.birth(i));
    line->second.since += all.birth(i) > failure.event ? 1U : 0U;
  }
  return usual;
}

// Of a pass that failed, what the program still has after the same lines have run again and again
// and freed what they made: none of their other blocks lived half as long. Or what it still has
// when another pass fails.
KeptByError kept_since(const DeviceEvidence& d, const FailedAllocation& failure) {
  constexpr uint32_t kTimes = 3;
  const AllocationColumns& all = d.model->allocations;
  const FailedAllocation& last = d.model->failures.back();
  KeptByError kept{&failure, {}, 0, {}, 0};
  FailedPass pass = failed_pass(d, failure);
  // Most programs let go of it at once.
  const BirthRange later = births_within(*d.model, failure.event + 1, d.model->event_count());
  const uint32_t next = later.begin < later.end ? all.birth(later.begin) : kNever;
  std::erase_if(pass.rows, [&](uint32_t row) { return all.release(row) <= next; });
  if (pass.rows.empty()) return kept;
  const bool again = last.event > failure.event && begins_again(d, failure, pass, last);
  std::unordered_map<uint32_t, Usual> usual = usual_of(d, failure, pass);
  for (const uint32_t row : pass.rows) {
    const Usual& line = usual[all.stack(row)];
    const uint32_t end = std::min(all.release(row), d.model->event_count());
    const bool for_long = line.since >= kTimes && end - all.birth(row) > 2 * line.longest;
    const bool to_failure = last.event > failure.event && all.release(row) > last.event;
    if (!for_long && !(again && to_failure)) continue;
    const uint64_t bytes = all.block_bytes(row);
    kept.rows.push_back(row);
    kept.bytes += bytes;
    kept.by_stack[all.stack(row)] += bytes;
    if (to_failure) kept.at_later_failure_bytes += bytes;
  }
  return kept;
}

}  // namespace

bool KeptByError::fails_again(const DeviceEvidence& d) const {
  return at_later_failure_bytes != 0 &&
         at_later_failure_bytes >= d.model->failures.back().requested_bytes;
}

std::optional<KeptByError> kept_by_error(const DeviceEvidence& d) {
  if (!d.ran_out() || d.categories.of.empty()) return std::nullopt;
  // Each costs a pass over the history, and a server may catch thousands.
  constexpr size_t kMost = 64;
  const std::span failures(d.model->failures);
  KeptByError kept;
  for (const FailedAllocation& failure : failures.last(std::min(kMost, failures.size()))) {
    KeptByError since = kept_since(d, failure);
    if (since.bytes > kept.bytes) kept = std::move(since);
  }
  if (kept.bytes < std::max(kWorthSaying, d.peak_bytes() / 20)) return std::nullopt;
  return kept;
}

bool fails_for_earlier_error(const DeviceEvidence& d) {
  if (d.model == nullptr || d.model->failures.size() < 2) return false;
  const std::optional<KeptByError> kept = kept_by_error(d);
  return kept && kept->fails_again(d);
}

}  // namespace tidemark
