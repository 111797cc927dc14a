// Out of memory with little memory wasted: more is needed than fits.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/findings/advice.h"
#include "analysis/findings/causes/accumulations.h"
#include "analysis/findings/causes/card/foreign_memory.h"
#include "analysis/findings/causes/card/library_memory.h"
#include "analysis/findings/causes/failed_for_holes.h"
#include "analysis/findings/causes/held_blocks.h"
#include "analysis/findings/causes/held_weights.h"
#include "analysis/findings/causes/left_graphs.h"
#include "analysis/findings/causes/unusual_request.h"
#include "analysis/findings/growth/growing_step.h"
#include "analysis/findings/largest_line.h"
#include "analysis/findings/rules.h"
#include "analysis/insight/fragmentation.h"
#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

// A failure of the driver counts unless the same owner got as much later.
const FailedAllocation* last_refusal(const DeviceEvidence& d) {
  for (auto it = d.process->driver.failures.rbegin(); it != d.process->driver.failures.rend();
       ++it) {
    if (it->device != d.device) continue;
    const auto& all = d.process->driver.allocations;
    const bool recovered = std::any_of(all.begin(), all.end(), [&](const DriverAllocation& a) {
      return a.device == d.device && a.birth_ns > it->time_ns && a.owner == it->owner &&
             a.size_bytes >= it->requested_bytes;
    });
    if (!recovered) return &*it;
  }
  return nullptr;
}

// What other processes of this trace hold of the same card.
uint64_t held_by_siblings(const Evidence& evidence, const DeviceEvidence& d, int64_t time_ns) {
  const std::string card = card_of(*d.process, d.device);
  uint64_t bytes = 0;
  for (const DeviceEvidence& other : evidence.devices) {
    if (other.process == d.process || card_of(*other.process, other.device) != card) continue;
    if (other.process->knows_its_end() && other.process->last_ns < time_ns) continue;
    bytes += driver_state_at(other.process->driver, other.device, time_ns).card_bytes;
  }
  return bytes;
}

// The process of this trace with most free memory in PyTorch's cache on the same card, as far as it
// could give that back.
struct IdleCache {
  uint64_t pid = 0;
  uint64_t bytes = 0;
};
IdleCache idle_cache(const Evidence& evidence, const DeviceEvidence& d, int64_t time_ns) {
  IdleCache most;
  // Of snapshots the card is not known: they may be of several.
  if (held_by_siblings(evidence, d, time_ns) == 0) return most;
  const std::string card = card_of(*d.process, d.device);
  for (const DeviceEvidence& other : evidence.devices) {
    if (other.process == d.process || other.model == nullptr ||
        card_of(*other.process, other.device) != card ||
        (other.process->knows_its_end() && other.process->last_ns < time_ns)) {
      continue;
    }
    uint32_t event = 0;
    if (!other.model->event_at(time_ns, event)) continue;
    const MemoryTotals totals = other.model->totals_after(event);
    if (totals.reserved - std::min(totals.reserved, totals.active) <= most.bytes) continue;
    const MemoryState state = state_after(*other.model, event);
    const uint64_t idle =
        fragmentation_of(*other.model, state, other.process->names, 0).releasable_bytes;
    if (idle > most.bytes) most = {other.process->info.pid, idle};
  }
  return most;
}

void add_siblings(const Evidence& evidence, const DeviceEvidence& d, int64_t time_ns, Finding& f) {
  const uint64_t bytes = held_by_siblings(evidence, d, time_ns);
  if (bytes < d.total_bytes / 40 || bytes == 0) return;
  f.summary += fmt::format("; other recorded processes held {} of this card", size_text(bytes));
  f.evidence.emplace_back("other_recorded_bytes", bytes);
}

void driver_capacity(const Evidence& evidence, const DeviceEvidence& d, std::vector<Finding>& out) {
  const FailedAllocation* refusal = last_refusal(d);
  if (refusal == nullptr) return;
  const uint64_t held = driver_state_at(d.process->driver, d.device, refusal->time_ns).card_bytes;
  Finding f =
      d.finding("capacity", kError,
                fmt::format("the driver could not allocate another {}: this process held {}",
                            size_text(refusal->requested_bytes), size_text(held)));
  f.evidence = {{"requested_bytes", refusal->requested_bytes}, {"held_bytes", held}};
  add_siblings(evidence, d, refusal->time_ns, f);
  f.frames = d.process->names.stack_text(refusal->stack);
  out.push_back(std::move(f));
}

std::string summary_of(const DeviceEvidence& d, uint64_t requested, const MemoryTotals& totals) {
  const uint64_t in_use = totals.active;
  const std::string request =
      fmt::format("{}: {} requested", d.out_of_memory_text(), size_text(requested));
  const MemoryLimit& known = d.limit;
  const uint64_t limit = known.bytes;
  if (limit <= in_use) return fmt::format("{}, {} in use", request, size_text(in_use));
  if (known.at_least) {
    return fmt::format("{}, {} in use; the limit set by the program is not known, but at least {}",
                       request, size_text(in_use), size_text(limit));
  }
  const auto [used, of] = size_texts(in_use, limit);
  const std::string use = fmt::format("{} of {} in use", used, of);
  const uint64_t free = limit - in_use;
  if (free < requested && size_text(free) == size_text(requested)) {
    return fmt::format("{}, {} more than is free ({})", request, size_text(requested - free), use);
  }
  const uint64_t held = std::min(std::max(totals.reserved, in_use), limit);
  if (free < requested) {
    const std::string holes =
        held > in_use ? fmt::format(", {} of it in holes", size_text(held - in_use)) : "";
    return fmt::format("{}, {} free{} ({})", request, size_text(free), holes, use);
  }
  const uint64_t segment = segment_bytes_for(requested);
  if (limit - held >= requested && limit - held < segment) {
    return fmt::format("{}, for which PyTorch asks the driver for a segment of {}; {} free ({})",
                       request, size_text(segment), size_text(limit - held), use);
  }
  // Holes and the card together had enough bytes, but not in one piece.
  const bool small = requested <= kSmallBytes && held - in_use >= requested;
  return fmt::format("{}; {} free, but in pieces: {} in holes{} and {} that was not reserved ({})",
                     request, size_text(free), size_text(held - in_use),
                     small ? " (those among blocks above 1 MiB are not for small ones)" : "",
                     size_text(limit - held), use);
}

// Where one request needs more than everything else, that is what to look at.
std::optional<Advice> split_request(const DeviceEvidence& d, const FailedAllocation& failure,
                                    const MemoryTotals& totals,
                                    const std::vector<std::string>& frames) {
  const std::string place = frames.empty() ? "it" : place_of(frames);
  if (failure.requested_bytes > d.limit.bytes && !d.limit.at_least) {
    return Advice{"split_request",
                  fmt::format("this one request exceeds the whole limit of {}: nothing else that "
                              "is freed helps. Look at the shapes in {}, and compute it in parts",
                              size_text(d.limit.bytes), place),
                  0};
  }
  if (failure.requested_bytes < totals.active) return std::nullopt;
  return Advice{"split_request",
                fmt::format("this one request needs more than everything else together ({}): look "
                            "at the shapes in {}, and compute it in parts",
                            size_text(totals.active), place),
                0};
}

// What is neither free nor PyTorch's, nor anything else of this process or of others in the trace.
uint64_t held_by_others(const Evidence& evidence, const DeviceEvidence& d, int64_t time_ns) {
  if (d.limit.source != LimitSource::kDriver) return 0;
  const uint64_t own = driver_state_at(d.process->driver, d.device, time_ns).card_bytes;
  const uint64_t reserved = d.at_failure().reserved;
  const uint64_t known = d.limit.bytes + (own - std::min(own, reserved)) + kContextBytes +
                         held_by_siblings(evidence, d, time_ns);
  return d.total_bytes - std::min(d.total_bytes, known);
}

// If others hold so much of the card, it is they who must leave.
std::optional<Advice> free_the_card(const Evidence& evidence, const DeviceEvidence& d,
                                    const FailedAllocation& failure) {
  const uint64_t others = held_by_others(evidence, d, failure.time_ns);
  if (others < failure.requested_bytes || others <= d.total_bytes / 2) return std::nullopt;
  const ForeignMemory foreign = foreign_memory(evidence, d, failure.time_ns);
  const std::string who = foreign.pid == 0
                              ? "nvidia-smi lists them"
                              : fmt::format("the largest is process {} with {}", foreign.pid,
                                            size_text(std::min(foreign.pid_bytes, others)));
  return Advice{"free_the_card",
                fmt::format("other processes hold about {} of the card ({}): stop them, or run "
                            "this on another card",
                            size_text(others), who),
                others};
}

// Weights that fill the memory, whatever the batch: most of it, or a copy that takes a tenth and
// more than the request that failed.
std::optional<HeldWeights> filled_by_weights(const DeviceEvidence& d, uint32_t event,
                                             uint64_t requested) {
  if (d.limit.bytes == 0) return std::nullopt;
  HeldWeights weights = weights_held_at(d, event, std::max(requested, d.limit.bytes / 10));
  if (weights.lines.empty()) return std::nullopt;
  if (!weights.has_copy() && weights.bytes <= d.limit.bytes / 2) return std::nullopt;
  return weights;
}

void blame_weights(const DeviceEvidence& d, const HeldWeights& weights, bool being_made,
                   Finding& f) {
  const Dictionary& names = d.process->names;
  f.summary += "; " + weights_text(names, weights);
  f.evidence.emplace_back("weights_bytes", weights.bytes);
  if (weights.has_copy()) f.evidence.emplace_back("copied_weights_bytes", weights.copy.bytes);
  // Weights that are not all there at the highest instant may save nothing of it.
  Advice advice = smaller_weights(d, weights, being_made);
  if (advice.saves_bytes != 0 || being_made) f.advice.push_back(std::move(advice));
  // The line of a model's only weights says less than that of the request.
  const uint32_t line = weights.has_copy()          ? weights.copy.stack
                        : weights.lines.size() == 1 ? 0
                                                    : weights.lines.front().stack;
  if (line != 0) f.frames = names.stack_text(line);
}

// What the program holds beside all this: lines with a fifth of the limit and more than the request
// that failed, and than what was freed but waits for another stream.
std::vector<HeldLine> filled_by_held(const DeviceEvidence& d, const FailedAllocation& failure) {
  if (d.limit.bytes == 0) return {};
  const MemoryTotals totals = d.at_failure();
  const uint64_t pending = totals.active - std::min(totals.active, totals.allocated);
  std::vector<HeldLine> held = lines_held_at(
      d, failure.event, std::max({failure.requested_bytes, pending, d.limit.bytes / 5}));
  // A few blocks of the line that failed, hardly larger than its request, are what it works on. A
  // pool that did not fit has blocks of the very same call.
  constexpr size_t kFew = 8;
  const std::string failing = headline_of(d.process->names.stack_text(failure.stack));
  std::erase_if(held, [&](const HeldLine& line) {
    const uint64_t each = line.bytes / line.rows.size();
    const bool is_pool = std::any_of(line.rows.begin(), line.rows.end(), [&](uint32_t row) {
      return d.model->allocations.stack(row) == failure.stack;
    });
    return line.line == failing && line.rows.size() <= kFew && !is_pool &&
           failure.requested_bytes >= each / 2;
  });
  return held;
}

// `other_cause`: the request itself is unusual. Otherwise a small one that fails says little about
// what filled the memory.
void blame_held(const DeviceEvidence& d, const std::vector<HeldLine>& held,
                const FailedAllocation& failure, bool other_cause, Finding& f) {
  constexpr uint64_t kSmallRequest = 10;  // one part in so many
  const Dictionary& names = d.process->names;
  // One that adds to what it holds is the first to look at.
  const std::string failing = headline_of(names.stack_text(failure.stack));
  const auto adds = std::find_if(held.begin(), held.end(),
                                 [&](const HeldLine& line) { return line.line == failing; });
  const HeldLine& first = adds != held.end() ? *adds : held.front();
  const bool is_cause = !other_cause && failure.requested_bytes <= first.bytes / kSmallRequest;
  if (!is_cause && first.bytes < d.limit.bytes / 2) return;
  f.summary += "; " + held_text(d, held);
  f.evidence.emplace_back("held_beside_bytes", first.bytes);
  Advice advice = hold_less(d, first, held);
  if (!is_cause) advice.saves_bytes = 0;  // after the others
  f.advice.push_back(std::move(advice));
  if (is_cause) f.frames = names.stack_text(first.stack);
}

enum class Cause : uint8_t {
  kStep,               // a smaller step may help, as far as anybody knows
  kUnfinishedWeights,  // no step ran yet, and more weights would have followed
  kOther,              // a smaller step is no help
};

// More of the card than all that PyTorch has, or half of it.
bool fills_card(const DeviceEvidence& d, const LibraryMemory& library) {
  return d.total_bytes != 0 &&
         (library.bytes >= d.total_bytes / 2 ||
          (library.bytes >= d.total_bytes / 8 && library.bytes >= d.at_failure().reserved));
}

// Says what filled the memory, if that is not the step: other processes, another library, what past
// steps or a validation left, one unusual request, weights.
Cause find_cause(const Evidence& evidence, const DeviceEvidence& d, const FailedAllocation& failure,
                 Finding& f) {
  if (std::optional<Advice> advice = free_the_card(evidence, d, failure)) {
    f.advice.push_back(std::move(*advice));
    return Cause::kOther;
  }
  if (fails_for_what_was_left(d)) return Cause::kOther;  // its own finding tells
  const IdleCache idle = idle_cache(evidence, d, failure.time_ns);
  if (idle.bytes >= failure.requested_bytes && idle.bytes >= d.total_bytes / 8) {
    f.summary += fmt::format("; {} of that is free in the cache of process {}",
                             size_text(idle.bytes), idle.pid);
    f.evidence.emplace_back("idle_cache_bytes", idle.bytes);
    f.evidence.emplace_back("idle_cache_pid", idle.pid);
    f.advice.push_back(
        {"empty_other_cache",
         fmt::format("call torch.cuda.empty_cache() in process {} when its large requests are done "
                     "(or limit it with set_per_process_memory_fraction): frees {}",
                     idle.pid, size_text(idle.bytes)),
         idle.bytes});
    return Cause::kOther;
  }
  if (const LibraryMemory library = library_memory(d, failure.time_ns); fills_card(d, library)) {
    f.summary += "; " + library_text(library);
    f.evidence.emplace_back("library_bytes", library.bytes);
    f.frames = d.process->names.stack_text(library.stack);
    f.advice.push_back(shrink_library(d, library));
    return Cause::kOther;
  }
  const std::vector<HeldLine> held = filled_by_held(d, failure);
  if (const auto unusual = unusual_request(d)) {
    f.summary += "; " + unusual_text(*unusual);
    f.frames = d.process->names.stack_text(unusual->stack);
    f.advice.push_back(bound_request(d, *unusual));
    if (!held.empty()) blame_held(d, held, failure, true, f);
    return Cause::kOther;
  }
  const auto weights = filled_by_weights(d, failure.event, failure.requested_bytes);
  if (!held.empty() && (!weights || held.front().bytes > weights->bytes)) {
    blame_held(d, held, failure, false, f);
    return Cause::kStep;
  }
  if (!weights) return Cause::kStep;
  const bool unfinished = makes_weights(d, *weights, failure.stack);
  blame_weights(d, *weights, unfinished, f);
  return unfinished ? Cause::kUnfinishedWeights : Cause::kStep;
}

// Whether other settings do more than let one more request of a run in that needs too much: it went
// on, as much has fitted before, or they leave room for more.
bool lets_it_go_on(const DeviceEvidence& d, const FailedAllocation& failure,
                   const MemoryTotals& totals, const Advice& settings) {
  if (failure.requested_bytes > d.limit.bytes) return false;
  if (outgrows_limit(d)) return false;
  return !d.ends_at_failure() || d.peak_bytes() >= totals.active + failure.requested_bytes ||
         settings.saves_bytes >= totals.reserved / 10;
}

void add_what_else_is_known(const DeviceEvidence& d, Finding& f) {
  const bool others =
      d.limit.source == LimitSource::kDriver && d.total_bytes > d.limit.bytes + d.limit.bytes / 8;
  if (others) {
    f.summary += fmt::format("; the other {} of the card were not free",
                             size_text(d.total_bytes - d.limit.bytes));
  }
  const std::optional<GrowingStep> growing = growing_step(d);
  if (growing && growing->needed_bytes > d.limit.bytes) {
    f.summary += fmt::format(
        "; the step's requests are {:.2f} times those of the step before, "
        "which took {}: it needs about {}",
        growing->times, size_text(growing->before_bytes), size_text(growing->needed_bytes));
    f.evidence.emplace_back("step_needs_bytes", growing->needed_bytes);
  }
  if (!d.ends_at_failure()) {
    const size_t steps = d.steps.after_event(d.model->failures.back().event);
    f.summary += "; the program went on";
    if (steps != 0) f.summary += fmt::format(": {} followed", counted(steps, "step"));
  }
}

std::string_view without_others_text(const NeedOutsideTorch& outside) {
  return outside.leaves_others ? ", without the other processes of the recording" : "";
}

// "the process needs 600.0 MiB outside PyTorch, without the other processes of the recording"
std::string outside_text(const NeedOutsideTorch& outside) {
  return fmt::format("the process {} {} outside PyTorch{}",
                     outside.is_assumed ? "is assumed to need" : "needs", size_text(outside.bytes),
                     without_others_text(outside));
}

// What a smaller card asks for: weights that fill the peak or alone do not fit, other lines that
// hold a fifth of the limit in a program that trains, a smaller step, and where none of that is
// enough, what takes the most at the peak.
void add_ways_to_fit(const DeviceEvidence& d, uint64_t left, uint64_t excess, Finding& f) {
  const uint32_t peak = d.model->allocated_peak.event;
  const HeldWeights weights = weights_held_at(d, peak, std::max(excess, d.peak_bytes() / 10));
  const bool fill_it = weights.bytes > d.peak_bytes() / 2;
  if (!weights.lines.empty() && (fill_it || weights.has_copy() || weights.bytes > left)) {
    blame_weights(d, weights, false, f);
  }
  std::vector<HeldLine> held;
  if (d.categories.has_backward && left != 0) held = lines_held_at(d, peak, left / 5);
  if (!held.empty()) {
    f.summary += "; " + held_text(d, held);
    f.evidence.emplace_back("held_beside_bytes", held.front().bytes);
    f.advice.push_back(hold_less(d, held.front(), held));
    if (f.frames.empty()) f.frames = d.process->names.stack_text(held.front().stack);
  }
  add(f.advice, halve_batch(d, passes_wait_for_one_backward(d)));
  add(f.advice, mixed_precision(d));
  add(f.advice, checkpoint_layers(d));
  const bool enough = std::any_of(f.advice.begin(), f.advice.end(),
                                  [&](const Advice& a) { return a.saves_bytes >= excess; });
  std::optional<LargestLine> largest = largest_line(d, peak);
  if (enough || !largest) return;
  f.advice.insert(f.advice.begin(), look_at(d, *largest));
  if (!largest->frames.empty()) f.frames = std::move(largest->frames);
}

// A process without PyTorch, judged on a smaller card.
void find_smaller_card_for_driver(const DeviceEvidence& d, uint64_t card_bytes,
                                  std::vector<Finding>& out) {
  const NeedOutsideTorch outside = need_outside_torch(*d.process, d.device);
  if (outside.bytes <= card_bytes) return;
  Finding f = d.finding("capacity", kWarning,
                        fmt::format("it does not fit a card of this size: the process {} {}{}",
                                    outside.is_assumed ? "is assumed to need" : "needs",
                                    size_text(outside.bytes), without_others_text(outside)));
  f.evidence = {{"outside_bytes", outside.bytes}, {"card_bytes", card_bytes}};
  out.push_back(std::move(f));
}

// A run that did not fail for want of memory, judged on a smaller card.
void find_smaller_card(const DeviceEvidence& d, uint64_t card_bytes, std::vector<Finding>& out) {
  const uint64_t left = limit_on_card(*d.process, d.device, card_bytes).bytes;
  const uint64_t allocated = d.model->allocated_peak.bytes;
  const uint64_t reserved = d.model->reserved_peak.bytes;
  if (reserved <= left) return;
  const bool fits_packed = allocated <= left;
  const NeedOutsideTorch outside = need_outside_torch(*d.process, d.device);
  const auto [needed, room] = size_texts(fits_packed ? reserved : allocated, left);
  Finding f = d.finding(
      "capacity", kWarning,
      fmt::format(
          "it {} fit a card of this size: {} {} at the peak, and {} left for PyTorch ({}){}",
          fits_packed ? "may not" : "does not", needed, fits_packed ? "reserved" : "allocated",
          left == 0 ? "nothing is" : room + " are", outside_text(outside),
          fits_packed ? "; tidemark whatif --card replays it" : ""));
  f.evidence = {{"allocated_bytes", allocated},
                {"reserved_bytes", reserved},
                {"limit_bytes", left},
                {"outside_bytes", outside.bytes}};
  const uint64_t excess = (fits_packed ? reserved : allocated) - left;
  add_ways_to_fit(d, left, excess, f);
  out.push_back(std::move(f));
}

}  // namespace

void find_capacity(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    const uint64_t card_bytes = evidence.other_card_bytes;
    const bool other_card = card_bytes != 0;
    if (d.model == nullptr) driver_capacity(evidence, d, out);
    if (d.model == nullptr && other_card) find_smaller_card_for_driver(d, card_bytes, out);
    if (d.model != nullptr && !d.ran_out() && other_card) {
      find_smaller_card(d, card_bytes, out);
    }
    if (!d.ran_out()) continue;
    const FailedAllocation& failure = d.model->failures.back();
    const MemoryTotals totals = d.at_failure();
    if (failed_for_holes(d)) {
      if (other_card) find_smaller_card(d, card_bytes, out);
      continue;
    }
    Finding f = d.finding("capacity", kError, summary_of(d, failure.requested_bytes, totals));
    f.evidence = {{"requested_bytes", failure.requested_bytes},
                  {"allocated_bytes", totals.allocated},
                  {"reserved_bytes", totals.reserved},
                  {"device_free_bytes", failure.device_free_bytes},
                  {"limit_bytes", d.limit.bytes}};
    add_siblings(evidence, d, failure.time_ns, f);
    f.frames = d.process->names.stack_text(failure.stack);
    add(f.advice, split_request(d, failure, totals, f.frames));
    add_what_else_is_known(d, f);
    const Cause cause = find_cause(evidence, d, failure, f);
    // What lowers the highest instant of a step does not help a request between two steps.
    const bool in_step = cause == Cause::kStep && totals.allocated >= d.peak_bytes() / 4 * 3;
    if (in_step) {
      add(f.advice, halve_batch(d, passes_wait_for_one_backward(d)));
      add(f.advice, mixed_precision(d));
      add(f.advice, checkpoint_layers(d));
    }
    if (!fails_for_what_was_left(d)) add(f.advice, shard_states(d));
    if (in_step) add(f.advice, fuse_optimizer(d));
    if (cause != Cause::kUnfinishedWeights) {
      add(f.advice, avoid_failure(d, evidence.devices.size()));
    }
    d.model->release_pages();  // its replays read all events, and there may be many ranks
    // What saves next to nothing of the request is no help. Other advice without a number promises
    // nothing, and a bound makes the request itself smaller.
    std::erase_if(f.advice, [&](const Advice& a) {
      if (a.action == "allocator_settings") return !lets_it_go_on(d, failure, totals, a);
      if (a.action == "bound_request") return false;
      return a.saves_bytes != 0 && a.saves_bytes < failure.requested_bytes / 20;
    });
    // What lacks in an optimizer's step, or waits for other streams, has a finding of its own.
    const bool told = fails_in_optimizer(d) || totals.active > totals.allocated;
    if (f.advice.empty() && cause == Cause::kStep && !told) {
      if (const auto largest = largest_line(d, failure.event)) {
        f.advice.push_back(look_at(d, *largest));
      }
    }
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
