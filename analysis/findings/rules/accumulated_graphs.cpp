// Several forward passes keep their activations until one backward pass over the sum of their
// losses.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "analysis/findings/causes/accumulations.h"
#include "analysis/findings/rules.h"
#include "analysis/history/rehearsal.h"
#include "analysis/names/stack_lines.h"
#include "analysis/passes/backward_passes.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

// One backward pass after each forward pass: only one pass's activations are alive at a time, but
// from the second on, the gradients as well. Those of the step before go before the first of them.
void rehearse(const DeviceEvidence& d, const BackwardPass& backward, const Accumulation& found,
              Rehearsal& changed) {
  const AllocationColumns& all = d.model->allocations;
  const uint32_t first_backward = found.passes.front().end + 1;
  for (size_t k = 0; k + 1 < found.passes.size(); ++k) {
    for (const size_t i : found.passes[k].kept) {
      changed.leave_out_from(all[i], found.passes[k].end + 1);
    }
  }
  const BirthRange rows = births_within(*d.model, backward.first, backward.last + 1);
  for (size_t i = rows.begin; i < rows.end; ++i) {
    if (all.release(i) > backward.last && d.roles->of(all.stack(i)) == StackRole::kBackward) {
      changed.hold_from(all[i], first_backward);
    }
  }
  for (size_t i = 0; i < rows.begin && all.birth(i) < first_backward; ++i) {
    const bool goes = all.release(i) > first_backward && all.release(i) <= backward.first;
    if (goes && d.categories.of[i] == Category::kGradient) {
      changed.leave_out_from(all[i], first_backward);
    }
  }
}

// Without inputs, which are among what is kept.
uint64_t activation_bytes(const DeviceEvidence& d, const Accumulation& found) {
  const AllocationColumns& all = d.model->allocations;
  uint64_t bytes = 0;
  for (const ForwardPass& p : found.passes) {
    for (const size_t i : p.kept) {
      const bool input = found.of_functions ? d.categories.of[i] == Category::kInput
                                            : d.roles->of(all.stack(i)) == StackRole::kUser;
      if (!input) bytes += all.block_bytes(i);
    }
  }
  return bytes;
}

// What a backward pass leaves: as much as an earlier one did, or a gradient for each parameter.
uint64_t gradient_bytes(const DeviceEvidence& d) {
  const AllocationColumns& all = d.model->allocations;
  uint64_t parameters = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (d.categories.of[i] == Category::kParameter) parameters += all.block_bytes(i);
  }
  uint64_t most = 0;
  for (const BackwardPass& pass : d.backward_passes) {
    uint64_t bytes = 0;
    const BirthRange rows = births_within(*d.model, pass.first, pass.last + 1);
    for (size_t i = rows.begin; i < rows.end; ++i) {
      if (d.categories.of[i] == Category::kGradient) bytes += all.block_bytes(i);
    }
    most = std::max(most, bytes);
  }
  return d.backward_passes.empty() ? parameters : most;
}

// What the pass that failed still needs to become as large as those before it.
uint64_t rest_of_pass(const DeviceEvidence& d, const Accumulation& found, uint64_t pass_bytes) {
  const AllocationColumns& all = d.model->allocations;
  const uint32_t failed = d.model->failures.back().event;
  const BirthRange rows = births_within(*d.model, found.passes.back().end + 1, failed + 1);
  uint64_t bytes = 0;
  for (size_t i = rows.begin; i < rows.end; ++i) {
    if (all.release(i) > failed && d.roles->of(all.stack(i)) == StackRole::kForward) {
      bytes += all.block_bytes(i);
    }
  }
  return pass_bytes - std::min(pass_bytes, bytes);
}

struct Waiting {
  Accumulation most;  // of the step that keeps most
  uint64_t bytes = 0;
  uint64_t saved_bytes = 0;
  bool failed = false;  // memory ran out in such a step
};

Waiting waiting_graphs(const DeviceEvidence& d) {
  Waiting w;
  std::optional<Rehearsal> changed;  // only where needed: it takes memory for every event
  const auto note = [&](Accumulation found) {
    const uint64_t bytes = activation_bytes(d, found);
    if (bytes <= w.bytes) return;
    w.bytes = bytes;
    w.most = std::move(found);
  };
  for (const BackwardPass& backward : d.backward_passes) {
    Accumulation found = accumulation_before(d, backward);
    if (found.passes.empty()) continue;
    if (!changed) changed.emplace(*d.model);
    rehearse(d, backward, found, *changed);
    note(std::move(found));
  }
  w.saved_bytes = changed ? changed->saved_bytes() : 0;
  // A step that failed on its way to the peak has no backward pass to look at: it does at least
  // what those before it did.
  w.failed = d.ran_out() && !w.most.passes.empty() &&
             d.model->failures.back().event > d.backward_passes.back().last;
  if (w.failed) {
    w.saved_bytes = std::max(w.saved_bytes, w.bytes - w.bytes / w.most.passes.size());
  }
  Accumulation last = accumulation_at_failure(d, w.most);
  if (last.passes.empty()) return w;
  w.failed = true;
  const uint64_t bytes = activation_bytes(d, last);
  const uint64_t needed = gradient_bytes(d) + rest_of_pass(d, last, bytes / last.passes.size());
  w.saved_bytes = std::max(w.saved_bytes, bytes - std::min(bytes, needed));
  note(std::move(last));
  return w;
}

// Parts of a computation are known by their lines alone.
const char* severity_of(const DeviceEvidence& d, const Waiting& w) {
  if (w.failed) return kError;
  return w.most.of_functions && !d.is_tight() ? kInfo : kWarning;
}

std::string summary_of(const DeviceEvidence& d, const Waiting& w) {
  const std::string passes = grouped(w.most.passes.size());
  const std::string bytes = size_text(w.bytes);
  if (!d.categories.has_backward) {
    return fmt::format(
        "{} forward passes, each with a loss, keep {} of activations, and no backward pass came "
        "before memory ran out",
        passes, bytes);
  }
  if (w.most.of_functions) {
    return fmt::format(
        "{} parts of the same operations keep {} until one backward pass over the "
        "sum of their results",
        passes, bytes);
  }
  return fmt::format(
      "{} forward passes keep {} of activations until one backward pass over the sum of their "
      "losses",
      passes, bytes);
}

}  // namespace

void find_accumulated_graphs(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (d.model == nullptr) continue;
    const Waiting w = waiting_graphs(d);
    if (w.saved_bytes == 0 || w.saved_bytes < d.peak_bytes() / 20) continue;
    const size_t passes = w.most.passes.size();
    Finding f = d.finding("accumulated_graphs", severity_of(d, w), summary_of(d, w));
    f.evidence = {{"forward_passes", passes},
                  {"activation_bytes", w.bytes},
                  {"allocated_peak_bytes", d.peak_bytes()}};
    f.frames = d.process->names.stack_text(w.most.stack);
    f.advice.push_back(
        {"backward_per_pass",
         fmt::format(
             "call backward() on {}: the gradients add up to the same, and the activations of one "
             "{} at a time are alive: saves about {}{}",
             w.most.of_functions
                 ? fmt::format("the result of each part before {} adds it up", place_of(f.frames))
                 : "each loss as soon as it is computed",
             w.most.of_functions ? "part" : "pass", size_text(w.saved_bytes),
             d.categories.has_backward
                 ? ""
                 : ". If these passes are not for training, run them under torch.no_grad()"),
         w.saved_bytes});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
