#include "analysis/findings/kept_outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analysis/findings/growth.h"
#include "analysis/history/rehearsal.h"
#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr size_t kLeastBlocks = 4;

// Rows that are born in a phase, by stack: of the program's own lines, and results of forward
// passes. A line of the model with several blocks in a pass makes keys and values, or a graph.
std::map<uint32_t, std::vector<uint32_t>> rows_in(const DeviceEvidence& d, const Phase& phase,
                                                  const std::unordered_set<uint32_t>& graphs) {
  std::map<uint32_t, std::vector<uint32_t>> by_stack;
  std::unordered_set<uint32_t> in_pass;   // stacks
  std::unordered_set<uint32_t> repeated;  // in a pass
  const BirthRange births = births_within(*d.model, phase.first, phase.last);
  for (size_t i = births.begin; i < births.end; ++i) {
    const Allocation& a = d.model->allocations[i];
    const StackRole role = d.roles->of(a.stack);
    if (a.seeded) continue;
    if (role == StackRole::kForward) {
      if (!in_pass.insert(a.stack).second) repeated.insert(a.stack);
    } else {
      in_pass.clear();
      if (role != StackRole::kUser) continue;
    }
    const auto row = static_cast<uint32_t>(i);
    if (a.block_bytes > kSmallBytes && !graphs.contains(row)) by_stack[a.stack].push_back(row);
  }
  std::erase_if(by_stack, [&](const auto& entry) { return repeated.contains(entry.first); });
  return by_stack;
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
  std::vector<uint32_t> collected;
  Rehearsal newest(*d.model);
  for (const Phase& phase : d.phases) {
    if (!is_forward_only(phase.kind)) continue;
    for (const auto& [stack, rows] : rows_in(d, phase, graphs)) {
      if (growing.contains(stack) || !only_adds(d, rows)) continue;
      uint64_t bytes = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        bytes += d.model->allocations.block_bytes(rows[i]);
        if (i + 1 == rows.size()) break;
        collected.push_back(rows[i]);
        newest.leave_out_from(d.model->allocations[rows[i]],
                              d.model->allocations.birth(rows[i + 1]));
      }
      if (bytes > kept.bytes) {
        kept = {bytes, rows.size(), 0,
                stack, phase.kind,  are_freed_before(d, rows, next_validation(d, phase)),
                {}};
      }
    }
  }
  kept.saved_bytes = newest.saved_bytes();
  kept.collected = std::move(collected);
  if (kept.bytes == 0 || kept.saved_bytes < d.peak_bytes() / 20) return std::nullopt;
  return kept;
}

Finding creep_of_outputs(const DeviceEvidence& d, const KeptOutputs& kept) {
  const char* const severity = d.fails_in_validation() ? kError : d.is_tight() ? kWarning : kInfo;
  Finding f = d.finding("creep", severity,
                        fmt::format("a {} keeps what it computes for each batch{}: {} in {}",
                                    phase_name(kept.phase), kept.until_end ? " until its end" : "",
                                    size_text(kept.bytes), counted(kept.blocks, "block")));
  f.evidence = {{"held_bytes", kept.bytes}, {"held_blocks", kept.blocks}};
  const uint32_t caller = d.roles->caller_of(kept.stack);  // who keeps what a model returns
  f.frames = d.process->names.stack_text(caller != 0 ? caller : kept.stack);
  f.advice.push_back({"release_growth",
                      fmt::format("move what {} keeps to host memory, or keep only the sums that "
                                  "are needed: saves {}{}",
                                  place_of(f.frames), d.ends_at_failure() ? "at least " : "",
                                  size_text(kept.saved_bytes)),
                      kept.saved_bytes});
  return f;
}

}  // namespace tidemark
