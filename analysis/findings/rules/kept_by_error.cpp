// What a pass had computed when it ran out of memory is still there while the program goes on: an
// exception that is stored keeps its traceback, and that the variables of every function in it.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "analysis/findings/largest_stack.h"
#include "analysis/findings/rules.h"
#include "analysis/history/rehearsal.h"
#include "analysis/passes/backward_passes.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kWorthSaying = uint64_t{8} << 20;

struct Kept {
  std::vector<uint32_t> rows;
  uint64_t bytes = 0;
  std::unordered_map<uint32_t, uint64_t> by_stack;
};

// How long the blocks of each line live that were freed, and how many of them are younger than the
// error.
struct Usual {
  uint32_t longest = 0;  // in events
  uint32_t since = 0;
};

bool computes(StackRole role) {
  return role == StackRole::kForward || role == StackRole::kBackward;
}

// Rows of the pass that failed: of modules, with nothing else in between.
std::vector<uint32_t> rows_of_pass(const DeviceEvidence& d, const FailedAllocation& failure) {
  const AllocationColumns& all = d.model->allocations;
  std::vector<uint32_t> rows;
  for (size_t i = births_within(*d.model, 0, failure.event + 1).end; i-- > 0;) {
    if (all.seeded(i) || !computes(d.roles->of(all.stack(i)))) break;
    const bool of_model =
        d.categories.of[i] == Category::kParameter || d.categories.of[i] == Category::kGradient;
    if (all.release(i) > failure.event && !of_model) rows.push_back(static_cast<uint32_t>(i));
  }
  return rows;
}

// Of these, what the program still has after the same lines have run again and again and freed what
// they made: none of their other blocks lived half as long.
Kept kept_since(const DeviceEvidence& d, const FailedAllocation& failure) {
  constexpr uint32_t kTimes = 3;
  const AllocationColumns& all = d.model->allocations;
  const std::vector<uint32_t> rows = rows_of_pass(d, failure);
  std::unordered_map<uint32_t, Usual> usual;
  for (const uint32_t row : rows) usual.try_emplace(all.stack(row));
  for (size_t i = 0; i < all.size(); ++i) {
    const auto line = usual.find(all.stack(i));
    const bool of_pass = all.birth(i) <= failure.event && all.release(i) > failure.event;
    if (line == usual.end() || of_pass || all.release(i) == kNever) continue;
    line->second.longest = std::max(line->second.longest, all.release(i) - all.birth(i));
    line->second.since += all.birth(i) > failure.event ? 1U : 0U;
  }
  Kept kept;
  for (const uint32_t row : rows) {
    const Usual& line = usual[all.stack(row)];
    const uint32_t end = std::min(all.release(row), d.model->event_count());
    if (line.since < kTimes || end - all.birth(row) <= 2 * line.longest) continue;
    kept.rows.push_back(row);
    kept.bytes += all.block_bytes(row);
    kept.by_stack[all.stack(row)] += all.block_bytes(row);
  }
  return kept;
}

// Whether a later request would have fitted without it.
bool fails_again(const DeviceEvidence& d, const FailedAllocation& failure, const Kept& kept) {
  const FailedAllocation& last = d.model->failures.back();
  uint64_t held = 0;
  for (const uint32_t row : kept.rows) {
    if (d.model->allocations.release(row) > last.event)
      held += d.model->allocations.block_bytes(row);
  }
  return last.event > failure.event && held >= last.requested_bytes;
}

}  // namespace

void find_kept_by_error(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (!d.ran_out() || d.categories.of.empty()) continue;
    Kept kept;
    const FailedAllocation* failure = nullptr;
    for (const FailedAllocation& f : d.model->failures) {
      Kept since = kept_since(d, f);
      if (since.bytes <= kept.bytes) continue;
      kept = std::move(since);
      failure = &f;
    }
    if (kept.bytes < std::max(kWorthSaying, d.peak_bytes() / 20)) continue;
    Rehearsal freed(*d.model);
    uint64_t to_the_end = 0;
    for (const uint32_t row : kept.rows) {
      const Allocation a = d.model->allocations[row];
      freed.leave_out_from(a, failure->event + 1);
      if (a.release == kNever) to_the_end += a.block_bytes;
    }
    const uint64_t saved = freed.saved_bytes();
    const bool again = fails_again(d, *failure, kept);
    // What is let go of later and did no harm meanwhile is nobody's business.
    if (!again && saved < d.peak_bytes() / 20 && to_the_end < kept.bytes / 2) continue;
    Finding f = d.finding(
        "kept_by_error", again ? kError : kWarning,
        fmt::format("{} of a pass that ran out of memory was kept while the program went on",
                    size_text(kept.bytes)));
    f.evidence = {{"bytes", kept.bytes}, {"blocks", kept.rows.size()}};
    f.frames = d.process->names.stack_text(largest_stack(kept.by_stack));
    f.advice.push_back(
        {"drop_exception",
         fmt::format("do not store the exception: its traceback keeps the variables of all "
                     "functions that it went through; keep str(e), or call "
                     "traceback.clear_frames(e.__traceback__): frees {} after the error{}",
                     size_text(kept.bytes),
                     saved >= d.peak_bytes() / 20
                         ? fmt::format(" and saves {} at the peak", size_text(saved))
                         : ""),
         saved});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
