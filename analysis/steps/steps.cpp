#include "analysis/steps/steps.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>

#include "analysis/steps/level_growth.h"
#include "analysis/steps/median.h"
#include "analysis/steps/step_marks.h"
#include "analysis/steps/step_numbers.h"
#include "analysis/steps/step_rounds.h"

namespace tidemark {

namespace {

constexpr uint32_t kLeastSteps = 3;

// The bytes that the blocks of each kind need: those of the smallest block for such a request.
// Others are a little larger, where the free block that was taken was not worth splitting. Which
// one that is changes from step to step, and is no growth.
std::vector<uint64_t> needed_bytes(const AllocationHistory& model) {
  const auto& kinds = model.allocations.kinds();
  std::unordered_map<uint64_t, uint64_t> smallest;  // by request
  for (size_t i = 0; i < kinds.size(); ++i) {
    const uint64_t block = kinds[i].block_bytes;
    const auto [it, is_new] = smallest.try_emplace(kinds[i].requested_bytes, block);
    if (!is_new) it->second = std::min(it->second, block);
  }
  std::vector<uint64_t> needed;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const uint64_t requested = kinds[i].requested_bytes;
    needed.push_back(requested == 0 ? kinds[i].block_bytes : smallest.at(requested));
  }
  return needed;
}

// Returns the lowest needed bytes of each step.
std::vector<uint64_t> measure_water(const AllocationHistory& model,
                                    const std::vector<uint64_t>& needed, Steps& steps) {
  steps.levels.assign(steps.boundaries.size() - 1, {});
  std::vector<uint64_t> lows(steps.levels.size(), UINT64_MAX);
  // What is older than the history was there when the first step began.
  const uint32_t first = std::max(steps.boundaries.front(), model.seed_events);
  uint64_t level = first == 0 ? 0 : model.totals_after(first - 1).allocated;
  uint64_t beyond = 0;  // what the blocks have beyond their needs, of those since `first`
  for (size_t step = 0; step < steps.levels.size(); ++step) {
    StepLevels& levels = steps.levels[step];
    for (uint32_t e = std::max(steps.boundaries[step], first); e < steps.boundaries[step + 1];
         ++e) {
      model.passed(e);
      const uint32_t s = model.subject[e];
      const bool birth = model.change[e] == Change::kBirth;
      if (birth || model.change[e] == Change::kRelease) {
        const uint64_t block = model.allocations.block_bytes(s);
        const uint64_t unsplit = block - needed[model.allocations.kind(s)];
        level = birth ? level + block : level - block;
        if (model.allocations.birth(s) >= first)
          beyond = birth ? beyond + unsplit : beyond - unsplit;
      }
      levels.low_bytes = std::min(levels.low_bytes, level);
      levels.high_bytes = std::max(levels.high_bytes, level);
      lows[step] = std::min(lows[step], level - beyond);
    }
    if (levels.low_bytes == UINT64_MAX) {  // nothing happened in it
      levels = {level, level};
      lows[step] = level - beyond;
    }
  }
  return lows;
}

// What the blocks of one size and stack do between the two ends of the window.
struct HeldKind {
  int64_t gain = 0;
  uint64_t bytes = 0;
  uint64_t count = 0;
  uint32_t oldest = kNever;  // birth of the oldest one that is alive at the end
  bool freed = false;        // others were freed
};

// Compares what each stack holds at the two ends of the window. A line that keeps its results may
// also allocate temporaries of other sizes, of which some are alive at the end: of those, none is
// older than the last two steps.
void measure_growing_stacks(const AllocationHistory& model, const std::vector<uint64_t>& needed,
                            Steps& steps) {
  const uint32_t first = steps.boundaries[steps.window_first];
  // After an error everything is freed: what was held up to it counts.
  uint32_t last = steps.boundaries[steps.window_last + 1] - 1;
  if (!model.failures.empty()) last = std::max(first, std::min(last, model.failures.back().event));
  const uint32_t recent = steps.boundaries[steps.window_last - std::min(steps.window_last, 1U)];
  std::vector<HeldKind> kinds(model.allocations.kinds().size());
  for (size_t i = 0; i < model.allocations.size(); ++i) {
    const Allocation& a = model.allocations[i];
    HeldKind& k = kinds[model.allocations.kind(i)];
    const auto bytes = static_cast<int64_t>(needed[model.allocations.kind(i)]);
    if (a.birth < first && a.release >= first) k.gain -= bytes;
    if (a.birth >= first && a.release <= last) k.freed = true;
    if (a.birth <= last && a.release > last) {
      k.gain += bytes;
      k.bytes += a.block_bytes;
      ++k.count;
      k.oldest = std::min(k.oldest, a.birth);
    }
  }
  std::map<uint32_t, HeldKind> held;  // by stack
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    const HeldKind& k = kinds[kind];
    if (k.freed && k.oldest >= recent) continue;
    HeldKind& h = held[model.allocations.kinds()[kind].stack];
    h.gain += k.gain;
    h.bytes += k.bytes;
    h.count += k.count;
  }
  const double span = steps.window_last + 1 - steps.window_first;
  for (const auto& [stack, h] : held) {
    if (h.gain <= 0) continue;
    steps.growing.push_back({stack, static_cast<double>(h.gain) / span, h.bytes, h.count});
  }
  std::sort(steps.growing.begin(), steps.growing.end(), [](const auto& a, const auto& b) {
    return a.bytes_per_step != b.bytes_per_step ? a.bytes_per_step > b.bytes_per_step
                                                : a.stack < b.stack;
  });
}

// Whether the rhythm ended long before the history, so that its growth has stopped.
bool has_ended(const AllocationHistory& model, const Steps& steps) {
  if (steps.boundaries.back() < model.event_count()) return true;
  std::vector<uint64_t> lengths;
  for (size_t i = 0; i + 1 < steps.boundaries.size(); ++i) {
    lengths.push_back(steps.boundaries[i + 1] - steps.boundaries[i]);
  }
  const uint64_t last = lengths.back();
  return last > 4 * median(std::move(lengths));
}

// Events of the steps that can tell whether memory grows. After an error everything is freed, and
// at its end the program may free what it kept.
uint32_t telling_steps(const AllocationHistory& model, const Steps& steps) {
  constexpr uint32_t kGoesOn = 3;  // steps after an error that the program survived
  const uint32_t whole = steps.count() - (steps.source == StepSource::kMarks ? 0 : 1);
  if (model.failures.empty()) return whole;
  const auto failed = std::upper_bound(steps.boundaries.begin(), steps.boundaries.end(),
                                       model.failures.back().event);
  const auto before = static_cast<uint32_t>(failed - steps.boundaries.begin());
  return before + kGoesOn < steps.count() ? whole : std::min(whole, std::max(before, 1U) - 1);
}

// The first step that tells a level: a late history began in the middle of its first, and a device
// that the program used later than another has nothing in its first ones.
uint32_t first_telling_step(const AllocationHistory& model, const Steps& steps) {
  uint32_t first = 0;
  while (first < steps.count() && steps.boundaries[first + 1] == 0) ++first;
  return first + (model.seeded_blocks != 0 ? 1 : 0);
}

void measure_growth(const AllocationHistory& model, const std::vector<uint64_t>& needed,
                    const std::vector<uint64_t>& levels, Steps& steps) {
  const uint32_t begin = first_telling_step(model, steps);
  const uint32_t end = telling_steps(model, steps);
  if (begin >= end) return;
  const std::vector<uint64_t> lows(levels.begin() + begin, levels.begin() + end);
  const std::optional<LevelGrowth> growth = find_growth(lows);
  if (!growth) return;
  steps.window_first = begin + growth->first_step;
  steps.window_last = end - 1;
  steps.growth_bytes_per_step = growth->bytes_per_step;
  if (steps.growth_bytes_per_step > 0) measure_growing_stacks(model, needed, steps);
}

// The layers of a model also follow each other in a rhythm, while it is created and in a forward
// pass, but free nothing before the next layer comes. What an iteration allocates is mostly gone
// after the next one.
bool gives_back(const AllocationHistory& model, const std::vector<uint32_t>& boundaries) {
  struct Sum {
    uint64_t made = 0;
    uint64_t gone = 0;
    bool mostly() const { return gone >= made / 2; }
  };
  Sum blocks;
  Sum bytes;
  size_t step = 0;
  for (const Allocation& a : model.allocations) {
    if (a.seeded || a.birth < boundaries.front()) continue;
    while (step + 1 < boundaries.size() && a.birth >= boundaries[step + 1]) ++step;
    if (step + 2 >= boundaries.size()) break;
    const bool gone = a.release < boundaries[step + 2];
    ++blocks.made;
    bytes.made += a.block_bytes;
    blocks.gone += gone ? 1U : 0U;
    bytes.gone += gone ? a.block_bytes : 0;
  }
  return blocks.mostly() || bytes.mostly();
}

// The optimizers of two models that train each other may be of one class: their marks have one
// name, but end different passes. If each round of the program's loop has as many of them, the last
// one ends the step; otherwise it is less certain that a mark is a step.
void join_alternating(const ProcessModel& process, const AllocationHistory& model,
                      const StackRoles& roles, Steps& steps) {
  constexpr size_t kMostAlike = 9;  // of 10: a last step that has another batch
  std::vector<uint32_t>& marks = steps.boundaries;
  const std::vector<uint32_t> callers = callers_before(model, roles, marks);
  std::unordered_map<uint32_t, size_t> uses;
  size_t most = 0;
  for (const uint32_t caller : callers) most = std::max(most, ++uses[caller]);
  if (most * 10 > kMostAlike * callers.size()) return;
  const std::optional<Rhythm> loop = boundaries_from_loops(process, model, roles);
  if (!loop || loop->boundaries.empty()) return;
  struct Round {
    size_t first = 0;  // marks
    size_t last = 0;
  };
  std::map<size_t, Round> rounds;
  for (size_t i = 0; i < marks.size(); ++i) {
    const auto next = std::lower_bound(loop->boundaries.begin(), loop->boundaries.end(), marks[i]);
    const auto number = static_cast<size_t>(next - loop->boundaries.begin());
    rounds.try_emplace(number, Round{i, i}).first->second.last = i;
  }
  std::vector<uint32_t> ends;
  std::vector<size_t> sizes;
  size_t single = 0;
  size_t mixed = 0;
  for (const auto& [number, round] : rounds) {
    ends.push_back(marks[round.last]);
    sizes.push_back(round.last - round.first + 1);
    single += sizes.back() == 1 ? 1U : 0U;
    mixed += callers[round.first] != callers[round.last] ? 1U : 0U;
  }
  if (single * 10 >= kMostAlike * rounds.size()) return;
  const auto usual = static_cast<size_t>(std::count(sizes.begin(), sizes.end(), median(sizes)));
  // The last round may be unfinished, or the first.
  if (ends.size() >= kLeastSteps && usual + 2 >= rounds.size() && mixed + 2 >= rounds.size()) {
    marks = std::move(ends);
  } else {
    steps.confidence = 0.5;
  }
}

// Of a program that ran out of memory: whether the few steps that it marked are whole ones, each
// with a pass of the model, as the one that it died in. Otherwise they may be of several models or
// optimizers in turn.
bool are_first_steps(const AllocationHistory& model, const StackRoles& roles,
                     const std::vector<uint32_t>& marks) {
  if (marks.empty() || model.failures.empty() || model.seeded_blocks != 0) return false;
  const std::vector<uint32_t> callers = callers_before(model, roles, marks);
  const AllocationColumns& all = model.allocations;
  size_t last = all.size();
  const auto is_forward = [&](size_t i) { return roles.of(all.stack(i)) == StackRole::kForward; };
  while (last != 0 && all.birth(last - 1) >= marks.back() && !is_forward(last - 1)) --last;
  if (last == 0 || all.birth(last - 1) < marks.back()) return false;
  const uint32_t caller = roles.caller_of(all.stack(last - 1));
  return caller != 0 &&
         std::all_of(callers.begin(), callers.end(), [&](uint32_t c) { return c == caller; });
}

// Whether it is a module that allocates there.
bool is_of_layers(const AllocationHistory& model, const StackRoles& roles,
                  const std::vector<uint32_t>& boundaries) {
  if (boundaries.empty()) return false;
  const uint32_t stack = model.allocations.stack(model.subject[boundaries.back()]);
  return roles.of(stack) == StackRole::kForward;
}

}  // namespace

size_t Steps::before_event(uint32_t event) const {
  const auto next = std::upper_bound(boundaries.begin(), boundaries.end(), event);
  return static_cast<size_t>(std::max<std::ptrdiff_t>(next - boundaries.begin(), 1) - 1);
}

size_t Steps::after_event(uint32_t event) const {
  const auto next = std::upper_bound(boundaries.begin(), boundaries.end(), event);
  const auto rest = static_cast<size_t>(boundaries.end() - next);
  if (std::binary_search(done_again.begin(), done_again.end(), event)) return rest;
  return std::max<size_t>(rest, 1) - 1;
}

uint32_t Steps::end_of_step(uint32_t event) const {
  const auto it = std::upper_bound(boundaries.begin(), boundaries.end(), event);
  return it == boundaries.end() ? kNever : *it;
}

std::string Steps::name(size_t step) const {
  return (before ? "step " : "window step ") + std::to_string(number(step));
}

std::vector<uint32_t> Steps::boundaries_in(const AllocationHistory& from,
                                           const AllocationHistory& other) const {
  std::vector<uint32_t> there;
  for (const uint32_t boundary : boundaries) {
    uint32_t event = 0;
    const bool within = boundary < from.event_count();
    if (!within || other.event_count() == 0) {
      there.push_back(other.event_count());
    } else {
      there.push_back(other.event_at(from.time_ns[boundary], event) ? event + 1 : 0);
    }
  }
  return there;
}

void measure_steps(const AllocationHistory& model, Steps& steps) {
  if (steps.boundaries.size() < 2) return;
  model.release_pages();
  const std::vector<uint64_t> needed = needed_bytes(model);
  const std::vector<uint64_t> lows = measure_water(model, needed, steps);
  // The last step may end with the history; steps of another history may begin after all of it.
  const auto time_of = [&](uint32_t boundary) {
    return model.time_ns[std::min(boundary, model.event_count() - 1)];
  };
  std::vector<uint64_t> periods;
  for (size_t i = 0; i + 1 < steps.boundaries.size(); ++i) {
    periods.push_back(
        static_cast<uint64_t>(time_of(steps.boundaries[i + 1]) - time_of(steps.boundaries[i])));
  }
  steps.period_ns = static_cast<int64_t>(median(periods));
  if (steps.count() < 5) return;  // too few to measure growth
  if (steps.source != StepSource::kMarks && has_ended(model, steps)) return;
  measure_growth(model, needed, lows, steps);
}

namespace {
// Marked steps that ended before the program first used this device, while it used another. They
// count: the devices of a process have the same steps.
size_t steps_before(const ProcessModel& process, const AllocationHistory& model,
                    const StackRoles& roles) {
  const AllocationHistory* first = &model;
  for (const AllocationHistory& other : process.framework) {
    if (other.event_count() != 0 && other.time_ns[0] < first->time_ns[0]) first = &other;
  }
  if (first == &model || model.seeded_blocks != 0) return 0;
  const std::vector<uint32_t> ends = steps_from_marks(process, *first, roles).boundaries;
  return static_cast<size_t>(std::count_if(ends.begin(), ends.end(), [&](uint32_t end) {
    return end != 0 && end < first->event_count() && first->time_ns[end] <= model.time_ns[0];
  }));
}
}  // namespace

Steps find_steps(const ProcessModel& process, const AllocationHistory& model,
                 const StackRoles& roles) {
  Steps steps;
  Rhythm rhythm;
  if (model.event_count() == 0) return steps;
  MarkedSteps marked = steps_from_marks(process, model, roles);
  steps.boundaries = std::move(marked.boundaries);
  if (steps.boundaries.size() >= kLeastSteps || are_first_steps(model, roles, steps.boundaries)) {
    steps.source = StepSource::kMarks;
    steps.done_again = std::move(marked.done_again);
    steps.confidence = 1;
    join_alternating(process, model, roles, steps);
    // The part before the end of the first optimizer step is a separate step that begins with the
    // history.
    if (steps.boundaries.front() != 0) steps.boundaries.insert(steps.boundaries.begin(), 0);
    steps.boundaries.insert(steps.boundaries.begin(), steps_before(process, model, roles), 0);
  } else if (steps.boundaries.empty()) {
    // Where an optimizer step was marked only once or twice, another rhythm is that of its layers.
    StepSource source = StepSource::kLoop;
    if (std::optional<Rhythm> loops = boundaries_from_loops(process, model, roles)) {
      rhythm = std::move(*loops);
      keep_rounds(model, roles, rhythm.boundaries);
    } else {
      source = StepSource::kRhythm;
      rhythm = boundaries_from_rhythm(model);
      if (is_of_layers(model, roles, rhythm.boundaries)) rhythm = {};
    }
    Rhythm collectives = boundaries_from_collectives(process, model);
    if (collectives.confidence > rhythm.confidence) {
      source = StepSource::kCollectives;
      rhythm = std::move(collectives);
    }
    steps.boundaries = std::move(rhythm.boundaries);
    steps.confidence = rhythm.confidence;
    if (steps.boundaries.size() >= kLeastSteps && gives_back(model, steps.boundaries)) {
      steps.source = source;
    }
  }
  if (steps.source == StepSource::kNone) {
    steps.boundaries.clear();
    steps.confidence = 0;
    return steps;
  }
  // The last, unfinished step counts too: an error may have happened inside it.
  if (steps.source != StepSource::kMarks) {
    steps.boundaries.push_back(std::min(rhythm.end, model.event_count()));
  }
  measure_steps(model, steps);
  steps.before = steps_before_window(process, steps);
  return steps;
}

}  // namespace tidemark
