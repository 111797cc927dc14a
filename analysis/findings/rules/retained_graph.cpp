// Graphs of past steps are still alive: the program keeps a tensor that references them.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "analysis/findings/causes/left_graphs.h"
#include "analysis/findings/causes/past_graphs.h"
#include "analysis/findings/growth/growth.h"
#include "analysis/findings/kept_losses.h"
#include "analysis/findings/rules.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

Advice let_go(const DeviceEvidence& d, uint64_t saved) {
  if (!kept_graphs_have_losses(d)) {
    return {"release_results",
            fmt::format("something keeps the results of this call, on which no backward pass "
                        "was called: a list, an attribute, or an exception whose traceback holds "
                        "the variables of its functions. Release it, or keep detached copies: "
                        "saves {}",
                        size_text(saved)),
            saved};
  }
  // What grows in some of the steps may be those that fail: they have no end of their own.
  const bool some = stairs_of(d).has_value();
  return {"detach",
          fmt::format("detach what is kept from step to step: loss.item() instead of a loss, "
                      "detach() for a state or a result; avoid retain_graph{}: saves {}{}",
                      some ? "; keep no exception, whose traceback holds all variables" : "",
                      some ? "at least " : "", size_text(saved)),
          saved};
}

void find_at_failure(const DeviceEvidence& d, std::vector<Finding>& out) {
  const std::optional<LeftGraphs> left = graphs_left_at_failure(d);
  if (!left) return;
  Finding f = d.finding("retained_graph", kError,
                        fmt::format("activations of {} past steps were still alive when memory ran "
                                    "out, up to {} of each",
                                    left->steps, size_text(left->bytes_per_step)));
  f.evidence = {{"steps", left->steps}, {"bytes_per_step", left->bytes_per_step}};
  f.frames = d.process->names.stack_text(left->stack);
  f.advice.push_back(let_go(d, left->saved_bytes));
  out.push_back(std::move(f));
}

Advice free_in_time(const DeviceEvidence& d, const PastGraph& past) {
  constexpr uint64_t kFew = 3;
  std::string text = "call backward() on each loss before the next forward pass begins";
  if (past.carries_state) {
    text =
        "detach() the state that goes into the next forward pass, and call backward() without "
        "retain_graph=True (gradients then end there: a loss no longer trains the passes before "
        "its own)";
  } else if (past.shares) {
    text =
        "another backward pass uses a part of this graph: if this loss is not to train that part (a "
        "discriminator's does not train the generator), detach() what it is computed from, and call "
        "backward() without retain_graph=True; else add both losses and call backward() once";
  } else if (!past.waits) {
    text = fmt::format(
        "call backward() without retain_graph=True{}, and let go of the loss and of results (del) "
        "before the next forward pass; if one of them goes into it, detach() it, which ends "
        "gradients there",
        past.passes < kFew ? ", unless another backward pass over the same graph follows" : "");
  }
  return {"free_graph",
          fmt::format("{}: saves {}{}", text, d.ends_at_failure() || past.shares ? "at least " : "",
                      size_text(past.saved_bytes)),
          past.saved_bytes};
}

std::string past_graph_text(const PastGraph& past) {
  if (past.waits) {
    return fmt::format(
        "activations of two steps are alive at the same time, as the backward pass of a step comes "
        "after the next forward pass: up to {}",
        size_text(past.bytes));
  }
  return fmt::format(
      "activations outlive their backward pass and are still alive in the next forward pass: {}",
      past.peak_passes > 1 ? fmt::format("{} at the peak, of {} passes", size_text(past.peak_bytes),
                                         past.peak_passes)
                           : "up to " + size_text(past.bytes));
}

void find_past_graph(const DeviceEvidence& d, std::vector<Finding>& out) {
  const std::optional<PastGraph> past = graph_of_past_step(d);
  if (!past) return;
  const char* const severity = fails_for_past_graph(d) ? kError : past->waits ? kInfo : kWarning;
  Finding f = d.finding("retained_graph", severity, past_graph_text(*past));
  f.evidence = {{"passes", past->passes}, {"bytes_per_pass", past->bytes}};
  if (past->peak_bytes != 0) f.evidence.emplace_back("peak_bytes", past->peak_bytes);
  f.frames = d.process->names.stack_text(past->stack);
  f.advice.push_back(free_in_time(d, *past));
  out.push_back(std::move(f));
}

// A graph also holds the inputs, which are not what refers to it.
uint32_t most_growing_in_forward(const DeviceEvidence& d) {
  const auto& growing = d.steps.growing;
  const auto found = std::find_if(growing.begin(), growing.end(), [&](const StackGrowth& g) {
    return d.roles->of(g.stack) == StackRole::kForward;
  });
  return found != growing.end() ? found->stack : growing.front().stack;
}

}  // namespace

void find_retained_graph(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (!grows(d)) {
      const size_t before = out.size();
      find_at_failure(d, out);
      if (out.size() == before) find_past_graph(d, out);
    }
    if (!grows_by_graphs(d)) continue;
    const auto per_step = static_cast<uint64_t>(d.steps.growth_bytes_per_step);
    const uint64_t full = full_at_step(d);
    const std::optional<FirstGrowth> first = first_growth(d);
    std::string summary =
        fmt::format("activations of past steps stay alive: memory grows by {}{}{}",
                    rate_text(d, " with every step"), since_text(d, first), full_text(d, true));
    Finding f = d.finding("retained_graph", d.ran_out() ? kError : kWarning, std::move(summary));
    f.evidence = {{"growth_bytes_per_step", per_step},
                  {"steps", d.steps.count()},
                  {"stacks", d.steps.growing.size()}};
    add_stairs(d, f);
    if (first) f.evidence.emplace_back("since_step", first->step);
    if (full != 0) f.evidence.emplace_back("full_at_step", full);
    f.frames = d.process->names.stack_text(most_growing_in_forward(d));
    const uint64_t saved = saved_by_letting_go(d, Keep::kNothing);
    f.advice.push_back(let_go(d, saved));
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
