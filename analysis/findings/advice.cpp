#include "analysis/findings/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "analysis/history/rehearsal.h"
#include "analysis/load/number_width.h"
#include "analysis/names/stacks_with.h"
#include "analysis/passes/batch_parts.h"
#include "analysis/plan/checkpointing.h"
#include "analysis/plan/laws/size_law.h"
#include "analysis/plan/program/program.h"
#include "analysis/wording.h"
#include "proto/base/in_parallel.h"

namespace tidemark {

namespace {

constexpr uint64_t kLeastRepeats = 4;  // layers of one kind that make recomputing them worthwhile

bool may_grow_with_batch(const DeviceEvidence& d, size_t i) {
  switch (d.categories.of[i]) {
    case Category::kActivation:
    case Category::kInput:
      return true;
    case Category::kTemporary: {
      // Temporaries of the forward and backward pass scale like activations; an optimizer's do not.
      const StackRole role = d.roles->of(d.model->allocations[i].stack);
      return role == StackRole::kForward || role == StackRole::kBackward ||
             role == StackRole::kUser;
    }
    default:
      return false;
  }
}

// Stacks with several activations of one step alive at the peak, as repeated layers have. What past
// steps left behind is not theirs.
std::unordered_map<uint32_t, uint64_t> repeated_stacks(const DeviceEvidence& d) {
  const uint32_t peak = d.model->allocated_peak.event;
  const auto& boundaries = d.steps.boundaries;
  const auto next = std::upper_bound(boundaries.begin(), boundaries.end(), peak);
  const uint32_t begin = next == boundaries.begin() ? 0 : *std::prev(next);
  std::unordered_map<uint32_t, uint64_t> counts;
  for (size_t i = 0; i < d.model->allocations.size(); ++i) {
    const Allocation& a = d.model->allocations[i];
    if (a.birth > peak) break;
    if (a.birth >= begin && a.release > peak && d.categories.of[i] == Category::kActivation &&
        a.block_bytes > kSmallBytes && d.roles->of(a.stack) == StackRole::kForward) {
      ++counts[a.stack];
    }
  }
  std::erase_if(counts, [](const auto& entry) { return entry.second < kLeastRepeats; });
  return counts;
}

// The stack of the tensor that one layer passes to the next: the last one before the first stack
// recurs.
uint32_t boundary_stack(const DeviceEvidence& d,
                        const std::unordered_map<uint32_t, uint64_t>& repeated) {
  const uint32_t peak = d.model->allocated_peak.event;
  uint32_t first = 0;
  uint32_t last = 0;
  for (size_t i = 0; i < d.model->allocations.size(); ++i) {
    const Allocation& a = d.model->allocations[i];
    if (a.birth > peak) break;
    if (a.release <= peak || !repeated.contains(a.stack) || a.block_bytes <= kSmallBytes) continue;
    if (first == 0) {
      first = a.stack;
    } else if (a.stack == first) {
      break;
    }
    last = a.stack;
  }
  return last;
}

// The repeated stacks in the order in which one call of a model allocates; one that allocates
// several times in a row is counted once.
struct ModelCall {
  uint32_t caller = 0;  // the line that calls it
  std::vector<uint32_t> stacks;
};

// How often the layer recurs in a call: as often as the rarest stack does, if all others recur
// between any two of its turns. 0: they are not of one kind of layer.
uint64_t layers_of(const ModelCall& call, size_t kinds) {
  std::unordered_map<uint32_t, uint64_t> turns;
  for (const uint32_t stack : call.stacks) ++turns[stack];
  if (turns.size() != kinds) return 0;
  const auto rarest = std::min_element(
      turns.begin(), turns.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::unordered_map<uint32_t, uint64_t> seen;  // in how many layers
  std::unordered_map<uint32_t, uint64_t> last;
  uint64_t layer = 1;
  for (const uint32_t stack : call.stacks) {
    if (stack == rarest->first) ++layer;
    if (std::exchange(last[stack], layer) != layer) ++seen[stack];
  }
  const bool one_kind = std::all_of(
      seen.begin(), seen.end(), [&](const auto& entry) { return entry.second >= rarest->second; });
  return one_kind ? rarest->second : 0;
}

// The number of repeated layers that one call of the model runs through; 0: not known. Calls of a
// model are told apart by what the program allocates between them.
uint64_t count_layers(const DeviceEvidence& d,
                      const std::unordered_map<uint32_t, uint64_t>& repeated) {
  uint64_t layers = 0;
  ModelCall call;
  for (size_t i = 0; i < d.model->allocations.size(); ++i) {
    const uint32_t stack = d.model->allocations.stack(static_cast<uint32_t>(i));
    const uint32_t caller =
        d.roles->of(stack) == StackRole::kForward ? d.roles->caller_of(stack) : 0;
    if (caller != call.caller) {
      layers = std::max(layers, layers_of(call, repeated.size()));
      call = {caller, {}};
    }
    const bool again = !call.stacks.empty() && call.stacks.back() == stack;
    if (caller != 0 && !again && repeated.contains(stack)) call.stacks.push_back(stack);
  }
  return std::max(layers, layers_of(call, repeated.size()));
}

}  // namespace

bool fails_in_first_call(const DeviceEvidence& d) {
  if (!d.ran_out() || d.roles->of(d.model->failures.back().stack) != StackRole::kForward) {
    return false;
  }
  std::unordered_set<uint32_t> callers;
  uint32_t last = 0;
  for (size_t i = 0; i < d.model->allocations.size(); ++i) {
    const uint32_t stack = d.model->allocations.stack(static_cast<uint32_t>(i));
    const uint32_t caller =
        d.roles->of(stack) == StackRole::kForward ? d.roles->caller_of(stack) : 0;
    if (caller != 0 && caller != last && !callers.insert(caller).second) return false;
    last = caller;
  }
  return !callers.empty();
}

namespace {

bool trains(const DeviceEvidence& d) {
  return d.categories.has_backward || fails_in_first_call(d);
}

// What a change saves. The later part of a run that failed would have needed more.
std::string saving_text(const DeviceEvidence& d, uint64_t saved) {
  return fmt::format("{}{}{}", d.ends_at_failure() ? "at least " : "", size_text(saved),
                     d.ran_out() ? " of what was recorded" : "");
}

// What half the batch leaves out of each allocation, as tidemark plan takes them to grow: nothing
// of copies of weights, and three quarters of what has a row and a column for every sample.
struct BatchHalves {
  std::vector<double> shares;  // by row
  bool of_pairs = false;       // of samples, too: halves of the batch compute something else
};

// Of what is surely less with half the batch: there may be fewer chunks instead of smaller ones.
double share_of_chunk(const SizeLaw& law, uint64_t bytes) {
  if (law.chunk == 0 || bytes == 0) return 0.5;
  return 1 - static_cast<double>(law.bytes(0.5, 1)) / static_cast<double>(bytes);
}

BatchHalves halves_of_batch(const DeviceEvidence& d) {
  const RecordedProgram program(*d.process, *d.model, *d.roles, d.steps, d.categories);
  const SizeLaws laws = infer_laws(program);
  BatchHalves halves;
  halves.shares.assign(program.rows(), 0);
  for (size_t i = 0; i < halves.shares.size(); ++i) {
    if (!may_grow_with_batch(d, i) || program.is_weight_copy(i)) continue;
    const bool of_pairs = laws[i].batch > 1;
    halves.of_pairs = halves.of_pairs || of_pairs;
    halves.shares[i] = of_pairs ? 0.75 : share_of_chunk(laws[i], program.bytes(i));
  }
  return halves;
}

// What is left out of what is alive when the last request fails.
uint64_t less_at_failure(const DeviceEvidence& d, const BatchHalves& halves) {
  const uint32_t failed = d.model->failures.back().event;
  uint64_t bytes = 0;
  for (size_t i = 0; i < d.model->allocations.size(); ++i) {
    const Allocation& a = d.model->allocations[i];
    if (a.birth > failed) break;
    if (a.release <= failed) continue;
    bytes += static_cast<uint64_t>(halves.shares[i] * static_cast<double>(a.block_bytes));
  }
  return bytes;
}

struct KeptAtPeak {
  uint64_t graphs = 0;   // in a phase without a backward pass, which frees none of them
  uint64_t results = 0;  // of the model, beside the activations of the step
};

KeptAtPeak kept_at_peak(const DeviceEvidence& d) {
  const Phase* phase = d.decisive_phase();
  if (phase != nullptr && !is_forward_only(phase->kind)) phase = nullptr;
  const uint32_t peak = d.model->allocated_peak.event;
  KeptAtPeak kept;
  for (size_t i = 0; i < d.model->allocations.size(); ++i) {
    const Allocation& a = d.model->allocations[i];
    if (a.birth > peak) break;
    if (a.release <= peak) continue;
    const Category category = d.categories.of[i];
    if (category == Category::kActivation && phase != nullptr && phase->holds(a.birth)) {
      kept.graphs += a.block_bytes;
    }
    if (category == Category::kUnknown && d.roles->of(a.stack) == StackRole::kForward) {
      kept.results += a.block_bytes;
    }
  }
  return kept;
}

// Whether the model goes through sequences: tokens that it embeds, more than one of each sample, or
// the steps of a recurrent layer.
bool has_sequence(const DeviceEvidence& d) {
  const std::vector<bool> recurrent = stacks_with(d.process->names, [&](const Frame& frame) {
    return d.process->names.string(frame.file).ends_with("torch/nn/modules/rnn.py");
  });
  const std::vector<bool> embeds = stacks_with(d.process->names, [&](const Frame& frame) {
    const std::string_view function = d.process->names.string(frame.function);
    const std::string_view file = d.process->names.string(frame.file);
    return function == "embedding" && file.ends_with("torch/nn/functional.py");
  });
  const AllocationColumns& all = d.model->allocations;
  for (size_t i = 0; i < all.size(); ++i) {
    const uint32_t stack = all.stack(i);
    if (stack >= embeds.size() || all.block_bytes(i) <= kSmallBytes) continue;
    if (recurrent[stack] || embeds[stack]) return true;
  }
  return false;
}

}  // namespace

void add(std::vector<Advice>& list, std::optional<Advice> advice) {
  if (advice) list.push_back(std::move(*advice));
}

std::optional<Advice> halve_batch(const DeviceEvidence& d, bool one_backward) {
  if (!trains(d)) return std::nullopt;
  if (d.at_peak(Category::kActivation) + d.at_peak(Category::kInput) == 0) return std::nullopt;
  Rehearsal half(*d.model);
  const BatchHalves halves = halves_of_batch(d);
  for (size_t i = 0; i < halves.shares.size(); ++i) {
    if (halves.shares[i] != 0) half.leave_out(d.model->allocations[i], halves.shares[i]);
  }
  const uint64_t saved = half.saved_bytes();
  if (saved == 0 || saved < d.peak_bytes() / 20) return std::nullopt;
  const KeptAtPeak kept = kept_at_peak(d);
  // The graphs of smaller and more batches take as much.
  if (kept.graphs >= d.peak_bytes() / 20) return std::nullopt;
  const bool keeps_results = kept.results >= d.peak_bytes() / 20;
  const bool parts =
      find_batch_parts(*d.process, *d.model, *d.roles, d.steps, d.categories, d.backward_passes)
          .decide_peak();
  const std::string batch =
      parts ? ""
      : d.decisive_phase() != nullptr
          ? fmt::format(" of the {}", phase_text(d.decisive_phase()->kind))
      : one_backward              ? " (with twice the accumulation steps only if backward() is "
                                    "called on each loss)"
      : halves.of_pairs           ? " (accumulating halves changes a loss over pairs of samples)"
      : d.categories.has_backward ? " (with twice the accumulation steps)"
                                  : "";
  const char* const subject = parts ? "what one pass gets (micro-batch, chunk)" : "the batch";
  const std::string_view sequence = has_sequence(d) ? " or the sequence length" : "";
  // The step that failed was given up: with half the batch it goes on, and may need more than was
  // recorded.
  if (d.ran_out() && !d.ends_at_failure()) {
    return Advice{"halve_batch",
                  fmt::format("halving {}{}{}: {} less is in use at the request that failed; "
                              "what the rest of its step needs was not recorded",
                              subject, batch, sequence, size_text(less_at_failure(d, halves))),
                  0};
  }
  return Advice{
      "halve_batch",
      fmt::format(
          "halving {}{}{} saves {}{}: activations, inputs and the passes' temporaries "
          "shrink, {}",
          subject, batch, sequence, keeps_results && !d.ends_at_failure() ? "at least " : "",
          saving_text(d, saved),
          keeps_results ? "and perhaps what is kept of the model's results" : "the rest stays"),
      saved};
}

namespace {

// As tidemark plan computes it; none: the nn.Modules are not known.
std::optional<CheckpointSaving> planned_saving(const DeviceEvidence& d) {
  const RecordedProgram program(*d.process, *d.model, *d.roles, d.steps, d.categories);
  if (!program.knows_modules()) return std::nullopt;
  return checkpoint_saving(program).value_or(CheckpointSaving{});
}

// Where they are not: by the stacks of layers.
CheckpointSaving saving_by_stacks(const DeviceEvidence& d) {
  const auto repeated = repeated_stacks(d);
  // Without a backward pass, two lines of each layer may be a cache of keys and values.
  if (repeated.size() < (d.categories.has_backward ? 2 : 3)) return {};
  const uint32_t boundary = boundary_stack(d, repeated);
  const uint64_t layers = count_layers(d, repeated);
  // Kept: the tensors between layers, and one layer's activations while it is recomputed.
  const double others = 1 - 1.0 / static_cast<double>(std::max(layers, kLeastRepeats));
  Rehearsal recomputed(*d.model);
  for (size_t i = 0; i < d.model->allocations.size(); ++i) {
    const Allocation& a = d.model->allocations[i];
    if (d.categories.of[i] != Category::kActivation || a.stack == boundary) continue;
    if (repeated.contains(a.stack)) recomputed.leave_out(a, others);
  }
  return {layers, recomputed.saved_bytes(), layers};
}

// A pass that was cut off may have more layers than those that ran.
std::string layers_text(const CheckpointSaving& saving, bool cut_off) {
  if (saving.layers < kLeastRepeats) return "each repeated layer";
  const std::string all = fmt::format("each of the {} repeated layers", saving.layers);
  if (!cut_off) return all;
  if (saving.began < saving.layers) {
    return fmt::format("{} (memory ran out in layer {})", all, saving.began);
  }
  return fmt::format("each repeated layer ({} had run)", saving.layers);
}

}  // namespace

std::optional<Advice> checkpoint_layers(const DeviceEvidence& d) {
  if (!trains(d) || d.decisive_phase() != nullptr) return std::nullopt;
  const std::optional<CheckpointSaving> planned = planned_saving(d);
  const CheckpointSaving saving = planned ? *planned : saving_by_stacks(d);
  const uint64_t saved = saving.bytes;
  if (saved == 0 || saved < d.peak_bytes() / 20) return std::nullopt;
  const bool trained = d.categories.has_backward;
  const bool cut_off = !trained && d.ends_at_failure() &&
                       d.roles->of(d.model->failures.back().stack) == StackRole::kForward;
  return Advice{
      "checkpoint",
      fmt::format("{}torch.utils.checkpoint around {} saves {}, at the cost of about a "
                  "third more computation{}",
                  trained ? "" : "if this is training, ", layers_text(saving, cut_off),
                  saving_text(d, saved),
                  trained ? "" : "; if it is not, torch.inference_mode() keeps none of this"),
      saved};
}

namespace {

// Stacks whose innermost frame is in torch.nn: under autocast the results of its operations, and
// what they save for the backward pass, have 16 bits. Results of the program's own lines (a
// residual sum) keep their type.
std::vector<bool> stacks_in_modules(const Dictionary& names) {
  std::vector<bool> inside(names.stack_count(), false);
  for (uint32_t id = 1; id < inside.size(); ++id) {
    const Frame& innermost = names.frame(names.stack(id).frame);
    inside[id] = names.string(innermost.file).find("torch/nn/") != std::string_view::npos;
  }
  return inside;
}

}  // namespace

std::optional<Advice> single_precision(const DeviceEvidence& d) {
  if (!computes_in_float64(d.process->names)) return std::nullopt;
  Rehearsal halved(*d.model);
  for (size_t i = 0; i < d.model->allocations.size(); ++i) {
    switch (d.categories.of[i]) {
      case Category::kParameter:
      case Category::kGradient:
      case Category::kOptimizerState:
      case Category::kActivation:
      case Category::kTemporary:
        halved.leave_out(d.model->allocations[i], 0.5);
        break;
      default:
        break;
    }
  }
  const uint64_t saved = halved.saved_bytes();
  if (saved < d.peak_bytes() / 20) return std::nullopt;
  return Advice{
      "single_precision",
      fmt::format("unless double precision is needed, convert the data and the model with "
                  ".float(): the kernels compute in float64, and float32 saves {}",
                  d.ends_at_failure() ? saving_text(d, saved) : "about " + size_text(saved)),
      saved};
}

std::optional<Advice> mixed_precision(const DeviceEvidence& d) {
  if (trains(d)) {
    if (const std::optional<Advice> single = single_precision(d)) return single;
  }
  if (!trains(d) || !d.process->compute.is_float32()) return std::nullopt;
  const std::vector<bool> in_module = stacks_in_modules(d.process->names);
  Rehearsal halved(*d.model);
  for (size_t i = 0; i < d.model->allocations.size(); ++i) {
    const Allocation& a = d.model->allocations[i];
    if (d.categories.of[i] == Category::kActivation && a.stack < in_module.size() &&
        in_module[a.stack]) {
      halved.leave_out(a, 0.5);
    }
  }
  // A 16-bit copy of each weight is kept until its backward pass is done.
  const uint64_t copies = d.at_peak(Category::kParameter) / 2;
  const uint64_t saved = halved.saved_bytes() - std::min(halved.saved_bytes(), copies);
  if (saved == 0 || saved < d.peak_bytes() / 20) return std::nullopt;
  return Advice{
      "mixed_precision",
      fmt::format("torch.autocast to bfloat16 may save roughly {}{}: all matrix products ran in "
                  "float32, and layer activations would take half the memory",
                  size_text(saved), d.ran_out() ? " of what was recorded" : ""),
      saved};
}

bool fails_in_optimizer(const DeviceEvidence& d) {
  if (!d.ran_out()) return false;
  const StackRole role = d.roles->of(d.model->failures.back().stack);
  return role == StackRole::kOptimizer || role == StackRole::kOptimizerInit;
}

std::optional<Advice> shard_states(const DeviceEvidence& d) {
  const uint64_t world = d.process->info.world_size;
  if (world < 2) return std::nullopt;
  const uint64_t states = d.at_peak(Category::kOptimizerState) + d.at_peak(Category::kGradient);
  const uint64_t saved = states / world * (world - 1);
  if (saved == 0 || saved < d.peak_bytes() / 20) return std::nullopt;
  return Advice{"shard",
                fmt::format("sharding gradients and optimizer state over the {} ranks (FSDP, ZeRO) "
                            "saves {} on each",
                            world, size_text(saved)),
                saved};
}

namespace {

bool goes_through(const Dictionary& names, uint32_t stack, std::string_view function) {
  const auto frames = names.frames_of(stack);
  return std::any_of(frames.begin(), frames.end(), [&](uint32_t frame) {
    return names.string(names.frame(frame).function).starts_with(function);
  });
}

// Stacks of PyTorch's own optimizers, which have these options; a program's own class is only
// called by the common part of them.
bool is_of_torch_optimizer(std::string_view file) {
  return file.find("torch/optim/") != file.npos && !file.ends_with("torch/optim/optimizer.py");
}

// Whether the request that failed is for a temporary that a fused optimizer does without.
bool fails_for_foreach(const DeviceEvidence& d) {
  if (!d.ran_out()) return false;
  const uint32_t stack = d.model->failures.back().stack;
  return d.roles->of(stack) == StackRole::kOptimizer &&
         goes_through(d.process->names, stack, "_multi_tensor_");
}

}  // namespace

std::optional<Advice> fuse_optimizer(const DeviceEvidence& d) {
  const Dictionary& names = d.process->names;
  const std::vector<bool> has_options = stacks_with(
      names, [&](const Frame& f) { return is_of_torch_optimizer(names.string(f.file)); });
  Rehearsal fused(*d.model);
  for (size_t i = 0; i < d.model->allocations.size(); ++i) {
    const Allocation& a = d.model->allocations[i];
    if (d.categories.of[i] == Category::kTemporary &&
        d.roles->of(a.stack) == StackRole::kOptimizer && has_options[a.stack]) {
      fused.leave_out(a);
    }
  }
  const uint64_t saved = fused.saved_bytes();
  if (fails_for_foreach(d)) {
    const uint64_t requested = d.model->failures.back().requested_bytes;
    return Advice{
        "fused_optimizer",
        fmt::format("fused=True in the optimizer: the {} that did not fit are for a "
                    "temporary of its foreach implementation, and the fused one works "
                    "without any{}",
                    size_text(requested), saved == 0 ? "" : ": saves " + saving_text(d, saved)),
        saved == 0 ? requested : saved};
  }
  if (saved == 0 || saved < d.peak_bytes() / 50) return std::nullopt;
  return Advice{"fused_optimizer",
                fmt::format("fused=True (or foreach=False) in the optimizer saves {}: it works "
                            "without parameter-sized temporaries",
                            saving_text(d, saved)),
                saved};
}

namespace {

// All that its first step would have made, where it failed to: two for each parameter in Adam and
// its kind, one in others.
uint64_t states_in_all(const DeviceEvidence& d) {
  const uint64_t made = d.at_peak(Category::kOptimizerState);
  if (!d.ran_out()) return made;
  const uint32_t stack = d.model->failures.back().stack;
  if (d.roles->of(stack) != StackRole::kOptimizerInit) return made;
  const Dictionary& names = d.process->names;
  const auto frames = names.frames_of(stack);
  const bool adam = std::any_of(frames.begin(), frames.end(), [&](uint32_t frame) {
    return names.string(names.frame(frame).file).find("torch/optim/") != std::string_view::npos &&
           names.string(names.frame(frame).file).find("adam") != std::string_view::npos;
  });
  return std::max(made, d.at_peak(Category::kGradient) * (adam ? 2 : 1));
}

// Another peak may remain, without the states.
uint64_t saved_by_half_of_states(const DeviceEvidence& d) {
  const AllocationColumns& all = d.model->allocations;
  Rehearsal half(*d.model);
  for (size_t i = 0; i < all.size(); ++i) {
    if (d.categories.of[i] == Category::kOptimizerState) half.leave_out(all[i], 0.5);
  }
  return half.saved_bytes();
}

}  // namespace

std::optional<Advice> smaller_states(const DeviceEvidence& d) {
  const uint64_t states = states_in_all(d);
  // Half of states in 16 bits, and more of those in 32 bits.
  const uint64_t saved = d.ran_out() ? states / 2 : saved_by_half_of_states(d);
  if (saved == 0 || saved < d.peak_bytes() / 10) return std::nullopt;
  if (saved != states / 2) {
    return Advice{"smaller_states",
                  fmt::format("an optimizer with states of 8 bits (bitsandbytes' AdamW8bit) or "
                              "factored ones (Adafactor), for half of its {} or less, saves {}",
                              size_text(states), size_text(saved)),
                  saved};
  }
  return Advice{"smaller_states",
                fmt::format("an optimizer with states of 8 bits (bitsandbytes' AdamW8bit) or "
                            "factored ones (Adafactor) saves half of its {} or more{}",
                            size_text(states),
                            states > d.at_peak(Category::kOptimizerState)
                                ? " (with those that were still to be made)"
                                : ""),
                saved};
}

namespace {

// Longer recordings take seconds to replay, once for each setting; the report replays only the part
// around their peak. In a job with hundreds of devices each gets a smaller share.
uint32_t most_replayed_events(size_t devices) {
  constexpr size_t kOfAll = 16'000'000;
  return static_cast<uint32_t>(
      std::clamp<size_t>(kOfAll / std::max<size_t>(devices, 1), 50'000, 1'000'000));
}

// The setting that reserves least, found by replaying the recorded requests under each.
std::optional<Prediction> best_setting(const WhatIf& whatif) {
  const std::vector<std::string> confs = sensible_confs();
  std::vector<std::optional<Prediction>> predictions(confs.size());
  // A setting that torch does not know stops the program at its start.
  constexpr TorchVersion kOldest{2, 5};
  const TorchVersion version = whatif.knows_version() ? whatif.own().version : kOldest;
  in_parallel(confs.size(), [&](size_t i) {
    const Result<AllocatorSettings> settings = AllocatorSettings::parse(confs[i], version);
    if (settings) predictions[i] = whatif.predict(*settings, confs[i]);
  });
  std::optional<Prediction> best;
  for (std::optional<Prediction>& p : predictions) {
    if (!p || p->out_of_memory) continue;
    if (!best || p->reserved_peak < best->reserved_peak) best = std::move(p);
  }
  return best;
}

std::string replayed_text(const WhatIf& whatif, const AllocationHistory& model) {
  if (!whatif.is_part()) return "this run's requests";
  return fmt::format("{} of this run's {} events around the peak",
                     grouped(whatif.replayed_events()), grouped(model.event_count()));
}

Result<WhatIf> replay_of(const DeviceEvidence& d, size_t devices) {
  WhatIfOptions options;
  options.most_events = most_replayed_events(devices);
  return WhatIf::prepare(*d.process, d.device, options);
}

}  // namespace

// The recorded requests, replayed with the settings that reserve least.
struct BestReplay {
  std::string replayed;  // what was replayed
  Prediction best;
  WhatIf::Baseline as_recorded;

  bool avoids_failures() const { return best.failures_avoided > as_recorded.failures_avoided; }
};

namespace {

std::shared_ptr<const BestReplay> find_best_replay(const DeviceEvidence& d, size_t devices) {
  if (!d.has_caching_allocator()) return nullptr;
  const Result<WhatIf> whatif = replay_of(d, devices);
  if (!whatif) return nullptr;  // requested sizes are not known
  std::optional<Prediction> best = best_setting(*whatif);
  if (!best || best->conf == whatif->own_conf()) return nullptr;
  return std::make_shared<const BestReplay>(
      BestReplay{replayed_text(*whatif, *d.model), std::move(*best), whatif->baseline()});
}

const BestReplay* best_replay(const DeviceEvidence& d, size_t devices) {
  std::call_once(d.shared->once, [&] { d.shared->best_replay = find_best_replay(d, devices); });
  return d.shared->best_replay.get();
}

}  // namespace

std::optional<uint64_t> saved_by_change(const DeviceEvidence& d, size_t devices,
                                        const RequestChange& change) {
  if (!d.has_caching_allocator()) return std::nullopt;
  const Result<WhatIf> whatif = replay_of(d, devices);
  if (!whatif) return std::nullopt;
  const Prediction changed = whatif->predict(change);
  const uint64_t reserved = whatif->baseline().reserved_peak;
  if (changed.ended_early) return 0;
  return reserved - std::min(reserved, changed.reserved_peak);
}

namespace {

std::string outcome_of(const DeviceEvidence& d, const BestReplay& replay, uint64_t saved) {
  if (!replay.avoids_failures()) return fmt::format("{} less is reserved", size_text(saved));
  return fmt::format("the request that failed fits, with {} reserved{}",
                     size_text(replay.best.reserved_peak),
                     d.ends_at_failure() ? "; the recording ends there, and what the program "
                                           "requests next is not known"
                                         : "");
}

}  // namespace

std::optional<Advice> change_allocator(const DeviceEvidence& d, size_t devices) {
  const BestReplay* const replay = best_replay(d, devices);
  if (replay == nullptr) return std::nullopt;
  const uint64_t reserved = replay->as_recorded.reserved_peak;
  const uint64_t saved = reserved - std::min(reserved, replay->best.reserved_peak);
  // If the run failed, avoiding the failure is the gain, whatever the peak is then.
  if (saved < reserved / 50 && !replay->avoids_failures()) return std::nullopt;
  const std::string& conf = replay->best.conf;
  return Advice{
      "allocator_settings",
      fmt::format("{}{}: in a replay of {}, {}",
                  conf.empty() ? "without PYTORCH_CUDA_ALLOC_CONF" : "PYTORCH_CUDA_ALLOC_CONF=",
                  conf, replay->replayed, outcome_of(d, *replay, saved)),
      saved};
}

std::optional<Advice> avoid_failure(const DeviceEvidence& d, size_t devices) {
  const BestReplay* const replay = best_replay(d, devices);
  if (replay == nullptr || !replay->avoids_failures()) return std::nullopt;
  return change_allocator(d, devices);
}

}  // namespace tidemark
