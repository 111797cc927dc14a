// A forward pass without a backward pass keeps its activations as if one followed.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analysis/findings/causes/accumulations.h"
#include "analysis/findings/causes/left_graphs.h"
#include "analysis/findings/growth/growth.h"
#include "analysis/findings/largest_stack.h"
#include "analysis/findings/own_line.h"
#include "analysis/findings/rules.h"
#include "analysis/history/rehearsal.h"
#include "analysis/names/module_stacks.h"
#include "analysis/names/stack_lines.h"
#include "analysis/passes/end_of_use.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kWorthSaying = 20;  // a twentieth of what the graphs hold

// Activations by stack: of passes without a backward pass, and of others.
std::unordered_map<uint32_t, LineShare> shares_of(const DeviceEvidence& d) {
  std::unordered_map<uint32_t, LineShare> stacks;
  for (uint32_t i = 0; i < d.model->allocations.size(); ++i) {
    if (d.categories.of[i] != Category::kActivation) continue;
    stacks[d.model->allocations.stack(i)].others += d.model->allocations.block_bytes(i);
  }
  for (const uint32_t i : d.categories.kept_without_backward) {
    LineShare& share = stacks[d.model->allocations.stack(i)];
    const uint64_t bytes = d.model->allocations.block_bytes(i);
    share.own += bytes;
    share.others -= std::min(share.others, bytes);
  }
  return stacks;
}

// What belongs to the passes that keep their graphs, beside the graphs.
struct BesidePasses {
  std::unordered_set<uint32_t> outputs;  // the last block of each pass: the program may keep it
  std::vector<uint32_t> results;         // computed from outputs outside modules, kept as long
  size_t passes = 0;
  size_t alive_passes = 0;  // of which graphs are there at the end of the recording

  // Passes whose graphs stay, one after the other. A program that trains lets go of those of a
  // validation, unless memory runs out in it.
  bool grow(const DeviceEvidence& d, bool fails) const {
    constexpr size_t kSeveral = 3;
    return alive_passes >= kSeveral &&
           (d.categories.has_backward ? fails : 2 * alive_passes >= passes);
  }
};

// How many large allocations later a result of a forward pass is still needed, by row.
std::vector<uint8_t> uses_of(const DeviceEvidence& d) {
  const AllocationColumns& all = d.model->allocations;
  const std::vector<bool> in_module = module_stacks(d.process->names);
  std::vector<uint8_t> uses(all.size(), kUses);
  size_t large = 0;
  size_t begin = 0;  // of the pass
  for (size_t i = 0; i <= all.size(); ++i) {
    const bool in_pass = i < all.size() && d.roles->of(all.stack(i)) == StackRole::kForward &&
                         in_module[all.stack(i)];
    if (in_pass) {
      large += all.block_bytes(i) > kSmallBytes ? 1U : 0U;
      continue;
    }
    for (size_t k = begin; k < i && large < 2 * kUses; ++k) uses[k] = kUsesOfFew;
    large = 0;
    begin = i + 1;
  }
  return uses;
}

class PassSearch {
 public:
  explicit PassSearch(const DeviceEvidence& d)
      : d_(d),
        all_(d.model->allocations),
        graphs_(d.categories.kept_without_backward.begin(),
                d.categories.kept_without_backward.end()),
        in_module_(module_stacks(d.process->names)) {}

  BesidePasses run() {
    for (uint32_t i = 0; i < all_.size(); ++i) {
      if (all_.seeded(i)) continue;
      const StackRole role = d_.roles->of(all_.stack(i));
      if (graphs_.contains(i)) {
        add_to_graph(i);
      } else if (role == StackRole::kBackward || role == StackRole::kOptimizer ||
                 role == StackRole::kOptimizerInit) {
        end_results();
      } else if (!in_module_[all_.stack(i)]) {
        add_result(i);
      }
    }
    end_results();
    return std::move(found_);
  }

 private:
  static constexpr uint32_t kFreedTogether = 16;  // events: a graph goes from its end to its start

  void add_to_graph(uint32_t row) {
    if (!in_pass_) {
      end_results();
      in_pass_ = true;
      first_release_ = kNever;
      last_release_ = 0;
    }
    last_ = row;
    alive_ = alive_ || all_.release(row) > end_;
    first_release_ = std::min(first_release_, all_.release(row));
    last_release_ = std::max<uint64_t>(last_release_, all_.release(row));
  }

  // What comes after the function that made the passes has other data, too.
  void add_result(uint32_t row) {
    end_pass();
    const uint64_t release = all_.release(row);
    if (release + kFreedTogether >= first_release_ && release <= last_release_ + kFreedTogether &&
        (!any_phase_ || in_phase(row))) {
      results_.push_back(row);
    }
  }

  bool in_phase(uint32_t row) const {
    return std::any_of(d_.phases.begin(), d_.phases.end(), [&](const Phase& p) {
      return is_forward_only(p.kind) && p.holds(all_.birth(row));
    });
  }

  void end_pass() {
    if (!std::exchange(in_pass_, false)) return;
    found_.outputs.insert(last_);
    ++found_.passes;
    if (std::exchange(alive_, false)) ++found_.alive_passes;
  }

  // The last result is what keeps the graph: the program has it with a graph or without.
  void end_results() {
    end_pass();
    const uint32_t keeper = results_.empty() ? 0 : all_.stack(results_.back());
    for (const uint32_t row : results_) {
      if (all_.stack(row) != keeper) found_.results.push_back(row);
    }
    results_.clear();
    last_release_ = 0;
    first_release_ = kNever;
  }

  const DeviceEvidence& d_;
  const AllocationColumns& all_;
  const std::unordered_set<uint32_t> graphs_;
  const std::vector<bool> in_module_;  // by stack
  const bool any_phase_ = std::any_of(d_.phases.begin(), d_.phases.end(),
                                      [](const Phase& p) { return is_forward_only(p.kind); });
  BesidePasses found_;
  std::vector<uint32_t> results_;  // of the last pass
  // The error with which the recording ends, after which variables are let go of.
  const uint32_t end_ = d_.ends_at_failure() ? d_.model->failures.back().event : kNever - 1;
  bool in_pass_ = false;
  bool alive_ = false;  // at the end, something of the pass
  uint32_t last_ = 0;   // row of the pass
  uint32_t first_release_ = kNever;
  uint64_t last_release_ = 0;
};

std::string results_text(uint64_t bytes, uint64_t of_graphs) {
  if (kWorthSaying * bytes <= of_graphs) return "";
  return fmt::format(", and {} computed from their results", size_text(bytes));
}

std::string at_most_text(uint64_t saved, uint64_t at_most) {
  if (kWorthSaying * (at_most - saved) <= saved) return "";
  return fmt::format(", and up to {} with what was computed from their results",
                     size_text(at_most));
}

// The line to name for graphs of which a stack has most: in a program that does not train, the one
// that calls the model.
uint32_t line_of(const DeviceEvidence& d, uint32_t stack) {
  if (d.categories.has_backward)
    return own_line(d.process->names, shares_of(d), stack).value_or(stack);
  const uint32_t caller = d.roles->caller_of(stack);
  return caller != 0 ? caller : stack;
}

// The most that is needed at one time to compute it without a graph, beyond what a graph keeps: its
// blocks stay to the end of the call.
uint64_t most_beside(const AllocationColumns& all, const SideGraph& graph) {
  std::vector<std::pair<uint32_t, uint64_t>> changes;  // by event; modulo 2^64
  for (const uint32_t row : graph.rows) changes.emplace_back(all.birth(row), all.block_bytes(row));
  for (const uint32_t row : graph.temporaries) {
    changes.emplace_back(all.birth(row), all.block_bytes(row));
    changes.emplace_back(all.release(row), uint64_t{0} - all.block_bytes(row));
  }
  std::sort(changes.begin(), changes.end());
  uint64_t now = 0;
  uint64_t most = 0;
  for (const auto& [event, bytes] : changes) most = std::max(most, now += bytes);
  return most - std::min(most, graph.bytes);
}

// What remains of the peak if all of it is computed after the backward pass, and without a graph.
uint64_t peak_without(const DeviceEvidence& d) {
  const AllocationColumns& all = d.model->allocations;
  Rehearsal without(*d.model);
  uint64_t later = 0;
  for (const SideGraph& graph : d.side_graphs) {
    for (const uint32_t row : graph.rows) without.leave_out(all[row]);
    for (const uint32_t row : graph.temporaries) without.leave_out(all[row]);
    later =
        std::max(later, d.model->totals_after(graph.pass.last).allocated + most_beside(all, graph));
  }
  return std::max(without.peak_bytes(), later);
}

// "train.py:71 (750.0 MiB) and train.py:72 (750.0 MiB)": the largest.
std::string lines_text(const Dictionary& names,
                       const std::unordered_map<uint32_t, uint64_t>& by_stack) {
  constexpr size_t kLines = 3;
  std::map<std::string, uint64_t> by_line;
  for (const auto& [stack, bytes] : by_stack) by_line[place_of(names.stack_text(stack))] += bytes;
  std::vector<std::pair<std::string, uint64_t>> lines(by_line.begin(), by_line.end());
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(lines.size(), kLines); ++i) {
    parts.push_back(fmt::format("{} ({})", lines[i].first, size_text(lines[i].second)));
  }
  return listed(parts);
}

// A metric that is computed with a graph, beside the loss.
void find_side_graph(const DeviceEvidence& d, std::vector<Finding>& out) {
  std::unordered_map<uint32_t, uint64_t> by_stack;  // at the peak
  uint64_t at_peak = 0;
  for (const SideGraph& graph : d.side_graphs) {
    for (const uint32_t row : graph.rows) {
      if (!d.model->allocations.alive_at(row, d.model->allocated_peak.event)) continue;
      by_stack[d.model->allocations.stack(row)] += d.model->allocations.block_bytes(row);
      at_peak += d.model->allocations.block_bytes(row);
    }
  }
  if (at_peak == 0) return;
  const uint64_t rest = peak_without(d);
  const uint64_t saved = d.peak_bytes() - std::min(rest, d.peak_bytes());
  if (saved < d.peak_bytes() / 20) return;
  Finding f = d.finding(
      "eval_keeps_graph", kWarning,
      fmt::format("{} of the peak are activations on which no backward pass is called: what the "
                  "step computes beside its loss, at {}",
                  size_text(at_peak), lines_text(d.process->names, by_stack)));
  f.evidence = {{"peak_bytes", at_peak}, {"passes", d.side_graphs.size()}};
  f.frames = d.process->names.stack_text(largest_stack(by_stack));
  f.advice.push_back({"no_grad",
                      fmt::format("compute this under torch.no_grad(), and after the backward "
                                  "pass: saves {}",
                                  size_text(saved)),
                      saved});
  out.push_back(std::move(f));
}

}  // namespace

void find_eval_keeps_graph(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model != nullptr) find_side_graph(d, out);
    if (d.model == nullptr || d.categories.kept_without_backward.empty()) continue;
    // A program that failed before its first backward pass.
    if (!d.categories.has_backward && !accumulation_at_failure(d, {}).passes.empty()) continue;
    const BesidePasses beside = PassSearch(d).run();
    const std::vector<uint8_t> uses = uses_of(d);
    Rehearsal without(*d.model);
    std::unordered_map<uint32_t, uint64_t> by_stack;
    uint64_t kept = 0;
    uint64_t at_peak = 0;
    bool few = false;  // operations in a pass: without a graph, variables may keep their results
    for (const uint32_t i : d.categories.kept_without_backward) {
      const Allocation& a = d.model->allocations[i];
      kept += a.block_bytes;
      if (a.alive_at(d.model->allocated_peak.event)) at_peak += a.block_bytes;
      if (a.seeded) {  // of the pass before the recording
        without.leave_out(a);
        continue;
      }
      if (!beside.outputs.contains(i)) without.leave_out_from(a, end_of_use(*d.model, i, uses[i]));
      few = few || uses[i] == kUsesOfFew;
      by_stack[a.stack] += a.block_bytes;
    }
    const uint64_t saved = without.saved_bytes();
    if (saved == 0 || saved < d.peak_bytes() / 20) continue;
    uint64_t results_at_peak = 0;
    for (const uint32_t i : beside.results) {
      const Allocation& a = d.model->allocations[i];
      without.leave_out_from(a, end_of_use(*d.model, i));
      if (a.alive_at(d.model->allocated_peak.event)) results_at_peak += a.block_bytes;
    }
    const uint64_t at_most = without.saved_bytes();
    const bool fails =
        d.fails_for_kept_graph() && !grows_by_graphs(d) && !graphs_left_at_failure(d);
    Finding f = d.finding("eval_keeps_graph", fails ? kError : kWarning,
                          fmt::format("forward passes without a backward pass keep their "
                                      "activations: {} of the peak{}",
                                      size_text(at_peak), results_text(results_at_peak, at_peak)));
    f.evidence = {{"blocks", d.categories.kept_without_backward.size()},
                  {"bytes", kept},
                  {"peak_bytes", at_peak}};
    if (beside.grow(d, fails)) f.evidence.emplace_back("growing_passes", beside.alive_passes);
    if (results_at_peak != 0) f.evidence.emplace_back("results_peak_bytes", results_at_peak);
    f.frames = d.process->names.stack_text(line_of(d, largest_stack(by_stack)));
    f.advice.push_back({"no_grad",
                        fmt::format("run these passes under torch.no_grad() or inference_mode(){}: "
                                    "saves {} {}{}",
                                    d.categories.has_backward || d.categories.graphs_end_with_pass
                                        ? ""
                                        : ", or keep only detached results (detach(), item())",
                                    few ? "up to" : "about", size_text(saved),
                                    few ? "" : at_most_text(saved, at_most)),
                        saved});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
