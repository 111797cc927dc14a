#include "analysis/findings/growth/kept_outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analysis/findings/growth/growth.h"
#include "analysis/history/rehearsal.h"
#include "analysis/insight/lives/block_life.h"
#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr size_t kLeastBlocks = 4;

// The events at which the forward passes of a phase begin: where the program has allocated
// something itself, or where the first operation runs again and everything is freed but what stays.
std::vector<uint32_t> passes_in(const DeviceEvidence& d, const BirthRange& births) {
  const AllocationColumns& all = d.model->allocations;
  const auto is_forward = [&](size_t i) {
    return !all.seeded(i) && d.roles->of(all.stack(i)) == StackRole::kForward;
  };
  size_t last = births.end;
  while (last > births.begin && !is_forward(last - 1)) --last;
  std::vector<uint32_t> begins;
  if (last == births.begin) return begins;
  const uint32_t last_birth = all.birth(last - 1);
  uint32_t first_stack = 0;
  uint32_t busy_until = 0;
  bool in_pass = false;
  for (size_t i = births.begin; i < last; ++i) {
    if (all.seeded(i)) continue;
    const bool was_in_pass = std::exchange(in_pass, is_forward(i));
    if (!in_pass) continue;
    if (begins.empty()) first_stack = all.stack(i);
    const bool again = all.stack(i) == first_stack && busy_until <= all.birth(i);
    if (!was_in_pass || again) begins.push_back(all.birth(i));
    if (all.release(i) <= last_birth) busy_until = std::max(busy_until, all.release(i));
  }
  return begins;
}

// What one stack of a validation leaves to the pass after its own. What it frees before, such as
// the statistics of a norm or the results of earlier layers, is no result.
struct Line {
  std::vector<uint32_t> rows;
  size_t round = SIZE_MAX;  // the last one that it allocates in
  size_t left = 0;          // by that one
  bool of_every_round = true;

  // Of a round that another follows. A line of the model that leaves several blocks makes keys and
  // values, or a graph.
  void end_round(bool forward) {
    if (round == SIZE_MAX) return;
    of_every_round = of_every_round && left != 0 && (!forward || left == 1);
    left = 0;
  }
};

// The round in whose pass of the model memory ran out: it has no result.
std::optional<size_t> failed_round(const DeviceEvidence& d, const Phase& phase,
                                   const std::vector<uint32_t>& begins) {
  if (!d.ran_out()) return std::nullopt;
  const FailedAllocation& failure = d.model->failures.back();
  if (!phase.holds(failure.event)) return std::nullopt;
  const size_t before = births_within(*d.model, 0, failure.event + 1).end;
  const auto is_forward = [&](uint32_t stack) { return d.roles->of(stack) == StackRole::kForward; };
  const bool in_pass = before != 0 && is_forward(d.model->allocations.stack(before - 1));
  if (!in_pass || !is_forward(failure.stack)) return std::nullopt;
  return static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), failure.event) -
                             begins.begin());
}

// Whether a backward pass frees a block: it is part of a graph, such as the input of a layer that
// is computed again.
bool is_used_by_backward(const DeviceEvidence& d, const Allocation& a) {
  const auto& passes = d.backward_passes;
  const auto next =
      std::upper_bound(passes.begin(), passes.end(), a.release,
                       [](uint32_t event, const BackwardPass& p) { return event < p.first; });
  return next != passes.begin() && std::prev(next)->consumes(a);
}

// Rows that are born in a phase and outlive their round, by stack: of the program's own lines, and
// results of forward passes.
std::map<uint32_t, Line> lines_in(const DeviceEvidence& d, const Phase& phase,
                                  const std::unordered_set<uint32_t>& graphs) {
  std::map<uint32_t, Line> lines;
  const BirthRange births = births_within(*d.model, phase.first, phase.last);
  const std::vector<uint32_t> begins = passes_in(d, births);
  if (begins.empty()) return lines;
  const std::optional<size_t> failed = failed_round(d, phase, begins);
  size_t round = 0;
  for (size_t i = births.begin; i < births.end; ++i) {
    const Allocation a = d.model->allocations[i];
    const bool forward = d.roles->of(a.stack) == StackRole::kForward;
    if (a.seeded || (!forward && d.roles->of(a.stack) != StackRole::kUser)) continue;
    while (round < begins.size() && begins[round] <= a.birth) ++round;
    const bool is_last = round == begins.size();
    if (forward && round == failed) continue;
    Line& line = lines[a.stack];
    if (line.round != round) line.end_round(forward);
    line.round = round;
    if (!is_last && a.release <= begins[round]) continue;
    ++line.left;
    const auto row = static_cast<uint32_t>(i);
    if (a.block_bytes <= kSmallBytes || graphs.contains(row)) continue;
    if (is_used_by_backward(d, a)) continue;
    const bool replaces = is_last && forward && !line.rows.empty() &&
                          d.model->allocations.birth(line.rows.back()) >= begins.back();
    if (replaces) line.rows.pop_back();  // the result of a pass is the newest
    line.rows.push_back(row);
  }
  for (auto& [stack, line] : lines) {
    if (line.round != begins.size()) line.end_round(d.roles->of(stack) == StackRole::kForward);
  }
  return lines;
}

// Whether a line only adds: nothing of it is freed before its last block is allocated.
bool only_adds(const DeviceEvidence& d, const std::vector<uint32_t>& rows) {
  if (rows.size() < kLeastBlocks) return false;
  const uint32_t last = d.model->allocations.birth(rows.back());
  for (const uint32_t i : rows) {
    if (d.model->allocations.release(i) <= last) return false;
  }
  return true;
}

// Whether a line's blocks are freed one by one as it allocates others: a buffer of bounded length,
// which was only filled at first.
bool is_window(const DeviceEvidence& d, uint32_t stack) {
  const AllocationColumns& all = d.model->allocations;
  std::vector<size_t> rows;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all.stack(i) == stack && !all.seeded(i)) rows.push_back(i);
  }
  size_t freed = 0;
  size_t replaced = 0;
  uint32_t last = 0;  // release
  auto next = rows.begin();
  for (const size_t row : rows) {
    const uint32_t release = all.release(row);
    if (release == kNever) break;
    while (next != rows.end() && all.birth(*next) < last) ++next;
    replaced += next != rows.end() && all.birth(*next) < release ? 1U : 0U;
    ++freed;
    last = release;
  }
  return freed >= kLeastBlocks && 4 * freed >= rows.size() && 4 * replaced >= 3 * freed;
}

// The event at which the next validation begins; the end of the history if there is none.
uint32_t next_validation(const DeviceEvidence& d, const Phase& phase) {
  const auto next = std::find_if(d.phases.begin(), d.phases.end(), [&](const Phase& p) {
    return p.kind == phase.kind && p.first >= phase.last;
  });
  return next == d.phases.end() ? d.model->event_count() : next->first;
}

bool are_freed_before(const DeviceEvidence& d, const std::vector<uint32_t>& rows, uint32_t event) {
  return std::all_of(rows.begin(), rows.end(),
                     [&](uint32_t i) { return d.model->allocations.release(i) < event; });
}

// Whether the training steps after a rollout have what it kept, and the next rollout does not.
bool are_training_data(const DeviceEvidence& d, const Phase& phase,
                       const std::vector<uint32_t>& rows) {
  if (phase.kind == PhaseKind::kValidation) return false;
  const auto trained = std::find_if(d.backward_passes.begin(), d.backward_passes.end(),
                                    [&](const BackwardPass& p) { return p.first >= phase.last; });
  const uint32_t next = next_validation(d, phase);
  return trained != d.backward_passes.end() && trained->last < next &&
         are_freed_before(d, rows, next) && std::all_of(rows.begin(), rows.end(), [&](uint32_t i) {
           return d.model->allocations.release(i) > trained->last;
         });
}

}  // namespace

std::optional<KeptOutputs> outputs_kept(const DeviceEvidence& d) {
  if (d.model == nullptr) return std::nullopt;
  std::unordered_set<uint32_t> growing;
  if (grows(d)) {
    for (const StackGrowth& g : d.steps.growing) growing.insert(g.stack);
  }
  if (std::none_of(d.phases.begin(), d.phases.end(),
                   [](const Phase& p) { return is_forward_only(p.kind); })) {
    return std::nullopt;
  }
  const std::unordered_set<uint32_t> graphs(d.categories.kept_without_backward.begin(),
                                            d.categories.kept_without_backward.end());
  KeptOutputs kept;
  uint64_t most = 0;
  std::map<uint32_t, bool> windows;  // by stack
  Rehearsal newest(*d.model);
  for (const Phase& phase : d.phases) {
    if (!is_forward_only(phase.kind)) continue;
    std::vector<KeptOutputs::Line> lines;
    uint64_t of_phase = 0;
    bool until_end = true;
    for (const auto& [stack, line] : lines_in(d, phase, graphs)) {
      const std::vector<uint32_t>& rows = line.rows;
      if (growing.contains(stack) || !line.of_every_round || !only_adds(d, rows)) continue;
      if (are_training_data(d, phase, rows)) continue;
      const auto [window, is_new] = windows.try_emplace(stack, false);
      if (is_new) window->second = is_window(d, stack);
      if (window->second) continue;
      uint64_t bytes = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        bytes += d.model->allocations.block_bytes(rows[i]);
        if (i + 1 == rows.size()) break;
        kept.collected.push_back(rows[i]);
        newest.leave_out_from(d.model->allocations[rows[i]],
                              d.model->allocations.birth(rows[i + 1]));
      }
      lines.push_back({stack, bytes, rows.size()});
      of_phase += bytes;
      until_end = until_end && are_freed_before(d, rows, next_validation(d, phase));
    }
    if (of_phase <= most) continue;
    most = of_phase;
    kept.lines = std::move(lines);
    kept.phase = phase.kind;
    kept.until_end = until_end;
  }
  kept.saved_bytes = newest.saved_bytes();
  if (kept.lines.empty() || kept.saved_bytes < d.peak_bytes() / 20) return std::nullopt;
  std::stable_sort(kept.lines.begin(), kept.lines.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return kept;
}

namespace {

// Whether a request failed while they took a fifth of what was allocated: what joins them comes
// after the passes.
bool fails_beside(const DeviceEvidence& d, const KeptOutputs& kept) {
  if (!d.ran_out()) return false;
  const uint32_t failed = d.model->failures.back().event;
  uint64_t bytes = 0;
  for (const uint32_t i : kept.collected) {
    const Allocation& a = d.model->allocations[i];
    if (meets(a, failed) && a.birth <= failed) bytes += a.block_bytes;
  }
  return 5 * bytes >= d.at_failure().allocated;
}

}  // namespace

Finding creep_of_outputs(const DeviceEvidence& d, const KeptOutputs& kept) {
  const bool is_cause = d.fails_in_validation() || fails_beside(d, kept);
  const char* const severity = is_cause ? kError : d.is_tight() ? kWarning : kInfo;
  const std::string who =
      kept.phase == PhaseKind::kForwardOnly
          ? fmt::format(
                "forward passes without a backward pass keep what they compute for each "
                "batch{}",
                kept.until_end ? " until they end" : "")
          : fmt::format("a {} keeps what it computes for each batch{}", phase_name(kept.phase),
                        kept.until_end ? " until its end" : "");
  uint64_t bytes = 0;
  uint64_t blocks = 0;
  for (const KeptOutputs::Line& line : kept.lines) {
    bytes += line.bytes;
    blocks += line.blocks;
  }
  Finding f =
      d.finding("creep", severity,
                fmt::format("{}: {} in {}", who, size_text(bytes), counted(blocks, "block")));
  f.evidence = {{"held_bytes", bytes}, {"held_blocks", blocks}};
  if (kept.until_end || d.fails_in_validation()) f.evidence.emplace_back("may_end_with_phase", 1);
  std::vector<std::string> places;
  for (const KeptOutputs::Line& line : kept.lines) {
    const uint32_t caller = d.roles->caller_of(line.stack);  // who keeps what a model returns
    const std::vector<std::string> frames =
        d.process->names.stack_text(caller != 0 ? caller : line.stack);
    if (f.frames.empty()) f.frames = frames;
    const bool worth_naming = 10 * line.bytes >= bytes;
    if (std::string place = place_of(frames);
        worth_naming && std::find(places.begin(), places.end(), place) == places.end()) {
      places.push_back(std::move(place));
    }
  }
  f.advice.push_back(
      {"release_growth",
       fmt::format("move what {} keep{} to host memory, or keep only the sums that "
                   "are needed: saves {}{}",
                   listed(places), places.size() == 1 ? "s" : "",
                   d.ends_at_failure() ? "at least " : "", size_text(kept.saved_bytes)),
       kept.saved_bytes});
  return f;
}

}  // namespace tidemark
