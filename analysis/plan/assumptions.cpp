// What a plan assumes, in words.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/load/number_width.h"
#include "analysis/names/stack_lines.h"
#include "analysis/plan/plan.h"
#include "analysis/whatif/context_size.h"
#include "analysis/wording.h"

namespace tidemark {

void Planner::state_precision(PlanPrecision precision, std::vector<std::string>& out) const {
  if (precision == PlanPrecision::kRecorded) return;
  const RecordedWidths widths = recorded_widths(program_);
  const bool in_float64 = computes_in_float64(program_.process().names);
  const bool half = precision == PlanPrecision::kHalf;
  if (precision == PlanPrecision::kFull) {
    out.push_back(
        "the model and its inputs are converted to 32 bits: weights, gradients, optimizer states "
        "and activations halve; the recorded ones have 64 bits, as the names of the kernels tell. "
        "Other data that the program keeps through all steps stays as it is, except copies of "
        "weights");
  } else if (half && widths.all_in_16()) {
    out.push_back(
        "the recorded program computes in 16 bits, as the names of its kernels tell: its weights "
        "and activations are taken to have 16 bits already, and nothing changes");
  } else if (half && widths.autocasts) {
    out.push_back(
        "the recorded program used autocast: with a model in 16 bits, weights, gradients and "
        "optimizer states halve, and the casts of weights go");
  } else if (half) {
    out.push_back(fmt::format(
        "the model and its inputs are converted to 16 bits: weights, gradients, optimizer states "
        "and activations {}. Other data that the program keeps through all steps stays as it is, "
        "except copies of weights",
        in_float64 ? "take a quarter; the recorded ones have 64 bits, as the names of the kernels "
                     "tell"
        : widths.unsure()
            ? "halve where they have 32 bits. Kernels of the recording compute in 16 bits, too, "
              "and not of all tensors is known which they have: the range is from all to none of "
              "those"
        : widths.products == NumberWidth::kUnknown
            ? "halve if they have 32 bits. Nothing in the recording tells how many they have: if "
              "it "
              "is 16 already, nothing changes, which is where the range ends"
            : "halve; the recorded ones are taken to have 32 bits"));
  } else if (in_float64) {
    out.push_back(
        "the recorded program computes in 64 bits, as the names of its kernels tell, and "
        "autocast leaves such numbers as they are: convert the model and its inputs to 32 bits "
        "first (--precision fp32)");
  } else if (widths.computes_in_16()) {
    out.push_back("the recorded program computes in 16 bits already: autocast changes nothing");
  } else {
    out.push_back(
        "autocast: results of matrix products, convolutions and activation functions halve; "
        "weights, optimizer states, normalizations and sums keep 32 bits. A 16-bit copy of each "
        "weight is kept from its forward to the end of its backward pass; the range begins without "
        "these copies");
  }
}

bool Planner::has(Category category) const {
  for (size_t i = 0; i < program_.rows(); ++i) {
    if (program_.category(i) == category && program_.bytes(i) > 512) return true;
  }
  return false;
}

// What does not just grow with the batch.
void Planner::state_batch(std::vector<std::string>& out) const {
  const auto pairs = std::find_if(laws_.begin(), laws_.end(),
                                  [](const SizeLaw& l) { return !l.sure && l.batch == 2; });
  if (pairs != laws_.end()) {
    const auto row = static_cast<size_t>(pairs - laws_.begin());
    const uint32_t stack = program_.model().allocations.stack(row);
    out.push_back(fmt::format(
        "by their sizes, blocks such as those of {} have a row and a column for each sample, and "
        "grow with the square of the batch; the other end of the range has them grow as the rest "
        "does",
        place_of(program_.process().names.stack_text(stack))));
  }
  for (size_t i = 0; i < program_.rows(); ++i) {
    const bool is_pool = program_.category(i) == Category::kKvCache && program_.is_pool(i);
    if (!is_pool || laws_[i].scaled != 0 || laws_[i].sure) continue;
    out.push_back(
        "a cache that was there before the first call of a model is taken for a pool of a fixed "
        "size, which all requests share; the range ends where it grows with the batch");
    break;
  }
}

void Planner::state_assumptions(const PlanChange& change, uint64_t replayed,
                                std::vector<std::string>& out) const {
  const bool grows = change.batch != 1 || change.seq != 1;
  if (grows && learnt_.ratio != 1) {
    out.push_back(fmt::format(
        "learnt from two recordings: the other has {}x the {}; {} of the bytes that grow were "
        "matched",
        factor_text(learnt_.ratio), learnt_dimension_ == Dimension::kBatch ? "batch" : "sequence",
        percent_text(learnt_.matched_bytes, learnt_.all_bytes)));
  } else if (grows) {
    out.push_back(fmt::format(
        "inferred from one recording: inputs and what forward and backward passes allocate grow "
        "with the {}; weights, their copies and optimizer states do not{}",
        change.batch == 1 ? "length"
        : change.seq == 1 ? "batch"
                          : "batch and the length",
        change.batch == 1 ? "" : ". A second recording, with another batch, tells more"));
  }
  if (change.batch != 1) state_batch(out);
  if (change.seq != 1 && (learnt_.ratio == 1 || learnt_dimension_ == Dimension::kBatch)) {
    const bool square = std::any_of(laws_.begin(), laws_.end(),
                                    [](const SizeLaw& l) { return l.scaled != 0 && l.seq == 2; });
    if (variety_ == StepVariety::kLengths) {
      out.push_back("the lengths of the steps vary, and tell what grows with the sequence");
    } else {
      out.push_back(fmt::format(
          "{}, so this is assumed and not seen: what grows with the batch grows with the "
          "sequence{}. A second recording, with another length, tells more",
          variety_ != StepVariety::kNone ? "the steps vary, in their batch or in their length"
          : program_.passes().empty()    ? "the inputs of the steps do not tell which are longer"
                                         : "no steps were found that differ in their length",
          square ? ", attention matrices (results of softmax, and blocks that are several times as "
                   "large as any layer's result) with its square; the range begins where they grow "
                   "as the rest does"
                 : "; no attention matrices were found, which would grow with its square"));
    }
  }
  const bool evaluates = std::any_of(
      program_.evaluations().begin(), program_.evaluations().end(),
      [&](const Phase& phase) { return phase.holds(program_.model().allocated_peak.event); });
  if (change.batch != 1 && evaluates && learnt_.ratio == 1) {
    out.push_back(
        "the recorded peak is outside of training, in a validation or generation, which may have a "
        "batch of its own: the range has both, its batch changed and as recorded");
  }
  if (change.batch != 1 && may_divide_batch()) {
    const uint32_t caller = program_.batch_parts().caller;
    const Dictionary& names = program_.process().names;
    out.push_back(fmt::format(
        "each step calls the model several times with equal sizes{}, and without an input for each "
        "call. If a call gets a part of the batch (a micro-batch, a chunk), memory follows the "
        "size "
        "of the part: with another batch there may only be more or fewer parts. The range has both",
        caller == 0 ? "" : fmt::format(" ({})", place_of(names.stack_text(caller)))));
  }
  state_precision(change.precision, out);
  switch (change.optimizer) {
    case PlanOptimizer::kAdamW:
      out.push_back(
          "two states of the size of each weight; each step allocates one more of that size for a "
          "moment (foreach)");
      break;
    case PlanOptimizer::kAdamW8bit:
      out.push_back(
          "two states of one byte per weight and a factor per 256 of them; the step "
          "itself allocates nothing");
      break;
    case PlanOptimizer::kFused:
    case PlanOptimizer::kSgd:
    case PlanOptimizer::kSgdMomentum:
      out.push_back("the step itself allocates nothing");
      break;
    default:
      break;
  }
  if (change.checkpoint) {
    out.push_back(
        "each checkpointed layer keeps its result only and runs again at the beginning of its "
        "backward pass (use_reentrant=False)");
  }
  if (change.shard != PlanShard::kNone && change.ranks > 1) {
    const char* shared =
        change.shard == PlanShard::kZero3
            ? "FSDP2 with one group per layer and the rest in the root"
        : program_.gradients().empty()
            ? "there are no buckets: the recording has no gradients to copy into them"
            : "gradients are copied into buckets of 25 MiB";
    out.push_back(fmt::format(
        "{}; the batch of a rank stays as recorded; NCCL's own buffers are not counted", shared));
  }
  if (change.shard == PlanShard::kZero2 && change.ranks > 1 && !has(Category::kGradient)) {
    out.push_back(
        "no gradients were found in the recording: those that are older than its history may count "
        "as parameters. So none are divided, and zero2 plans what zero1 does");
  }
  if (ends_at_error()) {
    out.push_back(
        "the recorded run ended with an out-of-memory error: what it would have allocated later is "
        "not in the plan");
  }
  if (!program_.has_optimizer() && !program_.passes().empty() && !has(Category::kOptimizerState) &&
      change.optimizer == PlanOptimizer::kRecorded) {
    out.push_back("no step of an optimizer was recorded, so its states may be missing");
  }
  if (!change.has_conf && size_text(replayed) != size_text(whatif_.recorded_reserved_peak())) {
    const bool less = replayed < whatif_.recorded_reserved_peak();
    const auto [model, recorded] = size_texts(replayed, whatif_.recorded_reserved_peak());
    out.push_back(fmt::format(
        "replayed without a change, the requests reserve {}, and the run reserved {}: {}", model,
        recorded,
        less        ? "memory from before the history, or that the model finds room for, is not in "
                      "the replay; the range ends with the difference"
        : ran_out() ? "a request that failed succeeds there"
                    : "the model finds less room in free blocks than the allocator did; the range "
                      "begins with the difference"));
  }
  if (keeps_limit_) {
    out.push_back(
        "the driver refused memory in the recording, on a card of about this size: what it had for "
        "PyTorch then counts");
  }
  if (may_have_limit_) {
    out.push_back(
        "a limit that the program sets with set_per_process_memory_fraction is recorded only when "
        "a "
        "request exceeds it: if there is one, name it with --recorded-conf "
        "per_process_memory_fraction:0.5");
  }
  if (assumes_outside_ && !whatif_.assumes_other()) out.push_back(assumed_context_text());
  for (const std::string& note : whatif_.notes()) out.push_back(note);
}

}  // namespace tidemark
