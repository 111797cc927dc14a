// Growth from step to step, as the rules `creep` and `retained_graph` see it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "analysis/findings/evidence.h"

namespace tidemark {

// Whether the lowest level per step rises steadily and by an amount that matters.
bool grows(const DeviceEvidence& d);
// How often the model was called, as far as other allocations or those of its first line show it.
size_t calls_of_model(const DeviceEvidence& d);
// Whether memory ran out after growth of less than that, but of as much as the request that failed.
bool grows_towards_failure(const DeviceEvidence& d);
// What was gained in the steps in which memory grows.
uint64_t gained_bytes(const DeviceEvidence& d);
// Whether autograd graphs grow: activations of many operations, kept beyond their step.
bool grows_by_graphs(const DeviceEvidence& d);
// What of the growth the program still needs.
enum class Keep : uint8_t {
  kNothing,  // beyond the step that allocated it
  kNewest,   // until the same lines have allocated its successor
  kOnHost,   // nothing on the device: lines move what would outlive its step away at once
};
// Whether a stack always holds one block, which is replaced by a larger one, as torch.cat onto a
// history does.
bool replaces_its_block(const DeviceEvidence& d, const StackGrowth& growth);
// What to do about it, without the saving, and that: of the peak, without any block of the stack.
std::string advice_on_replacing(std::string_view places);
uint64_t saved_without(const AllocationHistory& model, uint32_t stack);
// The peak bytes saved if what grows had been freed when it is not needed any more.
uint64_t saved_by_letting_go(const DeviceEvidence& d, Keep keep);
// The step, counted from the beginning of the run, from which on memory grows.
struct FirstGrowth {
  uint64_t step = 0;
  bool exact = false;  // before it, the lines that grow kept nothing beyond a step
};
// Nothing: not known, or before the history began.
std::optional<FirstGrowth> first_growth(const DeviceEvidence& d);
bool grew_before_history(const DeviceEvidence& d);
// ", from step 12 on"; empty if it is not known. What follows the step of the optimizer counts as
// part of the next step.
std::string since_text(const DeviceEvidence& d, const std::optional<FirstGrowth>& first);
// After how many more steps the device will be full at this rate; nothing: not foreseeable.
std::optional<uint64_t> steps_until_full(const DeviceEvidence& d);
// That step, counted from the beginning of the run; 0: not foreseeable or, in a kept window, how
// many steps came before it is not known.
uint64_t full_at_step(const DeviceEvidence& d);
// How much memory grows by, where that is not in every step: most steps add nothing.
struct Stairs {
  uint64_t bytes = 0;  // of a step that adds something, usually
  bool vary = false;   // these amounts
  uint64_t rises = 0;  // such steps
  uint64_t steps = 0;  // in which memory grows, with those that add nothing
  uint64_t every = 0;  // so many steps, if they are equally far apart; 0: they are not
};
// `most_rises`: the largest share of steps that add something.
std::optional<Stairs> stairs_of(const DeviceEvidence& d, double most_rises = 0.5);
// Adds them to the evidence.
void add_stairs(const DeviceEvidence& d, Finding& f);
// "15.0 MiB{per_step}", "300.0 MiB in every 20th step", "144.0 MiB in 41 of 257 steps".
std::string rate_text(const DeviceEvidence& d, std::string_view per_step);
// "; if it goes on like this, the card is full at about step 12", or "in about 12 more steps";
// empty if that is not foreseeable. `endless`: it will go on.
std::string full_text(const DeviceEvidence& d, bool endless);
// "step"; "repetition" (of a series of allocations) in a program without PyTorch that marks none.
std::string_view step_word(const DeviceEvidence& d);

}  // namespace tidemark
