// Memory grows from step to step.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "analysis/findings/causes/held_weights.h"
#include "analysis/findings/growth/growing_lines.h"
#include "analysis/findings/growth/growth.h"
#include "analysis/findings/growth/kept_outputs.h"
#include "analysis/findings/growth/run_growth.h"
#include "analysis/findings/growth/sawtooth.h"
#include "analysis/findings/growth/shared_requests.h"
#include "analysis/findings/growth/time_growth.h"
#include "analysis/findings/rules.h"
#include "analysis/history/rehearsal.h"
#include "analysis/insight/outside_history.h"
#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

// The first allocation after an event.
uint32_t first_born_after(const AllocationHistory& model, uint32_t event) {
  uint32_t low = 0;
  uint32_t high = static_cast<uint32_t>(model.allocations.size());
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    model.allocations.birth(middle) <= event ? low = middle + 1 : high = middle;
  }
  return low;
}

// Whether lines that grow also free what they have held beyond its step.
bool frees_some_growth(const DeviceEvidence& d) {
  std::set<uint32_t> stacks;
  for (const StackGrowth& g : d.steps.growing) stacks.insert(g.stack);
  return std::any_of(d.model->allocations.begin(), d.model->allocations.end(),
                     [&](const Allocation& a) {
                       return a.release != kNever && stacks.contains(a.stack) &&
                              a.release > d.steps.end_of_step(a.birth);
                     });
}

// Where the states of optimizers grow; empty where something else does.
std::string_view advice_on_made_anew(const DeviceEvidence& d) {
  const auto& growing = d.steps.growing;
  if (growing.empty() || d.roles == nullptr) return {};
  if (!in_optimizer(d.roles->of(growing.front().stack))) return {};
  if (std::any_of(growing.begin(), growing.end(), [&](const StackGrowth& g) {
        return d.roles->of(g.stack) == StackRole::kModuleSetUp;
      })) {
    return "models and their optimizers are made anew while the old ones are kept: keep results or "
           "weights in host memory, and drop each optimizer with everything that refers to it";
  }
  return "optimizers are made anew while the states of the old ones are kept: make one before "
         "the loop, or drop the old one with everything that refers to it";
}

Finding creep(const DeviceEvidence& d, std::string_view whose) {
  const auto per_step = static_cast<uint64_t>(d.steps.growth_bytes_per_step);
  const uint64_t full = full_at_step(d);
  const std::optional<FirstGrowth> first = first_growth(d);
  const std::string until_full = full_text(d, false);
  std::string summary =
      step_word(d) == "step"
          ? fmt::format("memory{} grows by {}{}{}", whose, rate_text(d, " per step"),
                        since_text(d, first), until_full)
          : fmt::format("memory{} grows by {} each time the program repeats its allocations{}",
                        whose, size_text(per_step), until_full);
  Finding f = d.finding("creep", d.ran_out() && grows(d) ? kError : kWarning, std::move(summary));
  f.evidence = {{"growth_bytes_per_step", per_step}, {"steps", d.steps.count()}};
  add_stairs(d, f);
  if (first) f.evidence.emplace_back("since_step", first->step);
  if (full != 0) f.evidence.emplace_back("full_at_step", full);
  if (!d.steps.growing.empty()) {
    const StackGrowth& most = d.steps.growing.front();
    f.frames = d.process->names.stack_text(most.stack);
    f.evidence.emplace_back("held_bytes", most.held_bytes);
    f.evidence.emplace_back("held_blocks", most.held_count);
  }
  const bool replaces = !d.steps.growing.empty() && replaces_its_block(d, d.steps.growing.front());
  uint64_t saved = saved_by_letting_go(d, Keep::kNewest);
  // A program that serves several requests at once also needs the memory of those that are running.
  // What of it is older than requests become is known better than what memory rises by.
  const uint64_t gained = gained_bytes(d);
  if (!replaces && !d.categories.has_backward && d.model->seeded_blocks == 0) {
    const std::optional<TimeGrowth> left =
        frees_some_growth(d) ? growth_over_time(d) : std::nullopt;
    if (left && !left->left.empty()) saved = std::min(saved, left->saved_bytes);
    if (saved > gained + gained / 10) saved = gained;
  }
  // The newest may be many: a validation keeps the results of all its batches.
  const uint64_t elsewhere = d.categories.has_backward ? saved_by_letting_go(d, Keep::kOnHost) : 0;
  const std::string_view anew = advice_on_made_anew(d);
  const bool shared = !d.steps.growing.empty() && d.roles != nullptr &&
                      requests_share_blocks(d, d.steps.growing.front().stack);
  std::string text = replaces        ? advice_on_replacing(places_of_growth(d))
                     : !anew.empty() ? std::string(anew)
                     : shared        ? fmt::format(
                                           "free what is allocated at {} when {}, or move it to host "
                                                  "memory",
                                           places_of_growth(d), kNothingUsesIt)
                              : fmt::format(
                                    "keep only what is still needed of what is allocated at {}, "
                                    "or move it to host memory",
                                    places_of_growth(d));
  const bool may_move = !replaces && anew.empty();
  if (saved != 0) {
    text += fmt::format(": saves {}{} at the peak", may_move ? "up to " : "", size_text(saved));
  }
  if (may_move && elsewhere > saved + saved / 20) {
    text += fmt::format("{} {} if all of it is moved to host memory", saved != 0 ? "," : ": saves",
                        size_text(elsewhere));
  }
  if (may_move) text += how_it_is_kept(d);
  if (!d.ran_out() && (!d.categories.has_backward || !until_full.empty()))
    text += " (a cache that is still being filled looks the same)";
  f.advice.push_back({"release_growth", std::move(text), saved});
  return f;
}

// What of the card is left for the memory of `outside`: the rest holds PyTorch's segments, contexts
// and other processes, as at the last reading.
uint64_t left_for(const DeviceEvidence& d, const AllocationHistory& outside) {
  uint64_t others = d.model != nullptr ? d.model->reserved_peak.bytes : 0;
  const auto& counters = d.process->counters;
  for (auto c = counters.rbegin(); c != counters.rend(); ++c) {
    if (c->kind != CounterKind::kDeviceUsed || c->device != d.device) continue;
    uint32_t event = 0;
    const bool began = outside.event_at(c->time_ns, event);
    const uint64_t own = began ? outside.totals_after(event).allocated : 0;
    others = std::max(others, c->value - std::min(c->value, own));
    break;
  }
  return d.total_bytes - std::min(d.total_bytes, others);
}

// Growth of driver memory outside the framework, over the same steps.
void find_creep_outside(const DeviceEvidence& d, std::vector<Finding>& out) {
  const AllocationHistory history = history_outside_framework(*d.process, d.device);
  if (history.event_count() == 0) return;
  DeviceEvidence outside;
  outside.process = d.process;
  outside.device = d.device;
  outside.total_bytes = d.total_bytes;
  outside.shares_card = d.shares_card;
  outside.limit = {left_for(d, history), false, LimitSource::kCard};
  outside.model = &history;
  outside.roles = d.roles;
  if (d.steps.count() != 0) {
    outside.steps.source = d.steps.source;
    outside.steps.boundaries = d.steps.boundaries_in(*d.model, history);
    measure_steps(history, outside.steps);
  } else {
    outside.steps = find_steps(*d.process, history, *d.roles);
  }
  if (grows(outside)) {
    out.push_back(creep(outside, d.model != nullptr ? " outside PyTorch's allocator" : ""));
  }
}

// Requests that one line of the model serves one after the other, by what they leave.
struct Requests {
  std::vector<uint32_t> kept;  // rows that stay although a later request was freed
  size_t kept_groups = 0;
  size_t freed_groups = 0;
};

// `rows`: of one stack, in the order of birth. The blocks of a finished request are freed together,
// and lie together in that order: requests that are served at the same time do not.
Requests requests_of(const AllocationHistory& model, const std::vector<uint32_t>& rows) {
  constexpr size_t kLeastBlocks = 4;  // of a request
  Requests found;
  Requests pending;  // since the last request that was freed
  for (size_t i = 0; i < rows.size();) {
    const uint32_t release = model.allocations.release(rows[i]);
    size_t end = i + 1;
    if (release == kNever) {
      while (end < rows.size() && model.allocations.release(rows[end]) == kNever) ++end;
      pending.kept.insert(pending.kept.end(), rows.begin() + static_cast<std::ptrdiff_t>(i),
                          rows.begin() + static_cast<std::ptrdiff_t>(end));
      ++pending.kept_groups;
    } else {
      const uint32_t next = first_born_after(model, release);
      const uint32_t until =
          next < model.allocations.size() ? model.allocations.birth(next) : kNever - 1;
      while (end < rows.size() && model.allocations.release(rows[end]) <= until) ++end;
      if (end - i < kLeastBlocks) return {};
      ++found.freed_groups;
      found.kept.insert(found.kept.end(), pending.kept.begin(), pending.kept.end());
      found.kept_groups += pending.kept_groups;
      pending = {};
    }
    i = end;
  }
  return found;
}

// Whether one line of the model allocates again and again, and nothing of it is ever freed.
bool only_adds(const AllocationHistory& model, const std::vector<uint32_t>& rows) {
  constexpr size_t kLeastBlocks = 32;
  if (rows.size() < kLeastBlocks) return false;
  const auto& allocations = model.allocations;
  // What is allocated once, layer by layer, is a buffer.
  const uint32_t span = allocations.birth(rows.back()) - allocations.birth(rows.front());
  return span > model.event_count() / 2 && std::all_of(rows.begin(), rows.end(), [&](uint32_t i) {
           return allocations.release(i) == kNever;
         });
}

// Caches of requests that stay although those of later ones were freed, or of which none was, in a
// program that serves. Graphs have a finding of their own.
void find_kept_requests(const DeviceEvidence& d, std::vector<Finding>& out) {
  constexpr size_t kLeastGroups = 2;
  constexpr size_t kLeastCalls = 3;  // in a single one, each layer adds what the graph keeps
  if (d.model == nullptr || d.categories.has_backward || d.ran_out()) return;
  if (!d.categories.kept_without_backward.empty()) return;
  const size_t calls = calls_of_model(d);
  std::map<uint32_t, std::vector<uint32_t>> by_stack;
  for (uint32_t i = 0; i < d.model->allocations.size(); ++i) {
    const Allocation& a = d.model->allocations[i];
    if (a.seeded || a.block_bytes <= kSmallBytes) continue;
    if (d.roles->of(a.stack) == StackRole::kForward) by_stack[a.stack].push_back(i);
  }
  for (const auto& [stack, rows] : by_stack) {
    Requests found = requests_of(*d.model, rows);
    const bool added = calls >= kLeastCalls && only_adds(*d.model, rows);
    if (added) found.kept = rows;
    if (!added && (found.kept_groups < kLeastGroups || found.freed_groups < kLeastGroups)) continue;
    Rehearsal freed(*d.model);
    uint64_t bytes = 0;
    for (const uint32_t i : found.kept) {
      freed.leave_out(d.model->allocations[i]);
      bytes += d.model->allocations.block_bytes(i);
    }
    const uint64_t saved = freed.saved_bytes();
    if (saved == 0 || saved < d.peak_bytes() / 20) continue;
    Finding f = d.finding(
        "creep", kInfo,
        added ? fmt::format("one line of the model allocated {} in {} blocks, and none was freed",
                            size_text(bytes), grouped(found.kept.size()))
              : fmt::format("{} of what one line of the model allocates stays, although later "
                            "blocks of it were freed together, {} times",
                            size_text(bytes), grouped(found.freed_groups)));
    f.evidence = {{"bytes", bytes}, {"blocks", found.kept.size()}};
    if (!added) f.evidence.emplace_back("kept_groups", found.kept_groups);
    f.frames = d.process->names.stack_text(stack);
    f.advice.push_back(
        {"release_growth",
         fmt::format("if requests that are finished hold them, let go of them: saves "
                     "up to {}",
                     size_text(saved)),
         saved});
    out.push_back(std::move(f));
  }
}

// Weights of the same sizes that one line made again and again, with passes in between, and all of
// which are there: perhaps each version that was loaded.
void find_kept_weights(const DeviceEvidence& d, std::vector<Finding>& out) {
  constexpr size_t kLeastTimes = 3;
  if (d.model == nullptr || d.ran_out() || d.categories.of.empty()) return;
  const HeldWeights weights =
      weights_held_at(d, d.model->allocated_peak.event, d.peak_bytes() / 10);
  if (weights.times < kLeastTimes) return;
  const uint64_t freed = freed_by_one_copy(weights);
  Finding f = d.finding(
      "creep", d.is_tight() ? kWarning : kInfo,
      fmt::format("one line made weights of the same sizes {} times, and all of them are there: {}",
                  weights.times, size_text(weights.times_bytes)));
  f.evidence = {{"bytes", weights.times_bytes}, {"times", weights.times}};
  f.frames = d.process->names.stack_text(weights.copy.stack);
  f.advice.push_back(
      {"free_old_weights",
       fmt::format("if only the newest are used, free the old ones before {} makes new ones; if "
                   "all are the same, share one copy: saves up to {}",
                   place_of(f.frames), size_text(freed)),
       freed});
  out.push_back(std::move(f));
}

// Whether it is the graphs of a program that does not train that grow: they have a finding of their
// own.
bool is_of_graphs(const DeviceEvidence& d, uint32_t stack) {
  return !d.categories.has_backward &&
         std::any_of(d.categories.kept_without_backward.begin(),
                     d.categories.kept_without_backward.end(),
                     [&](uint32_t i) { return d.model->allocations.stack(i) == stack; });
}

// Whether a line of the model allocates one block in each of its passes. The running requests hold
// no such blocks, but the keys and values of each layer.
bool is_output(const DeviceEvidence& d, uint32_t stack) {
  size_t passes = 0;
  bool in_pass = false;
  bool seen = false;  // in this pass
  for (const Allocation& a : d.model->allocations) {
    if (a.seeded) continue;
    const bool forward = d.roles->of(a.stack) == StackRole::kForward;
    if (forward && !in_pass) seen = false;
    in_pass = forward;
    if (!forward || a.stack != stack) continue;
    if (std::exchange(seen, true)) return false;
    ++passes;
  }
  return passes > 1;
}

bool creeps(const DeviceEvidence& d) {
  const bool graphs = !d.steps.growing.empty() && is_of_graphs(d, d.steps.growing.front().stack);
  return !graphs && ((grows(d) && !grows_by_graphs(d)) || grows_towards_failure(d));
}

}  // namespace

void find_creep(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model != nullptr && d.run.grows() && !grows_by_graphs(d)) {
      out.push_back(creep_of_run(d));
    } else if (creeps(d)) {
      out.push_back(creep(d, ""));
    }
    if (const std::optional<KeptOutputs> kept = outputs_kept(d)) {
      out.push_back(creep_of_outputs(d, *kept));
    }
    if (!grows(d)) {
      const size_t before = out.size();
      find_cycles(d, out);
      std::optional<TimeGrowth> growth;
      if (out.size() == before && !d.run.grows()) growth = growth_over_time(d);
      const uint32_t grown = growth && !growth->left.empty() ? growth->left[0].stack : 0;
      if (is_of_graphs(d, grown)) growth.reset();
      if (!growth || !is_output(d, grown)) find_kept_requests(d, out);
      if (growth && out.size() == before) out.push_back(creep_over_time(d, *growth));
      if (out.size() == before) find_collected(d, out);
      if (out.size() == before) find_kept_weights(d, out);
    }
    const size_t before = out.size();
    find_creep_outside(d, out);
    if (d.model == nullptr && d.run.grows() && out.size() == before) {
      out.push_back(creep_of_run(d));
    }
  }
}

}  // namespace tidemark
