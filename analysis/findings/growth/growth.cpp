#include "analysis/findings/growth/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analysis/history/rehearsal.h"
#include "analysis/names/module_stacks.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {
constexpr uint64_t kLeastGrowth = uint64_t{8} << 20;
constexpr uint64_t kGraphBlocks = 3;  // a graph is kept through several operations

double window_of(const Steps& steps) {
  return steps.window_last + 1 - steps.window_first;
}

bool is_of_model(Category category) {
  return category == Category::kParameter || category == Category::kGradient ||
         category == Category::kOptimizerState;
}

// What grows, by the stacks of the blocks.
std::unordered_set<uint32_t> growing_stacks(const DeviceEvidence& d) {
  std::unordered_set<uint32_t> stacks;
  for (const StackGrowth& g : d.steps.growing) stacks.insert(g.stack);
  return stacks;
}

// Blocks that are older than the history and to which those that grow are added: of the same lines
// or, where their lines are not known, of the same sizes.
uint64_t older_growth(const DeviceEvidence& d) {
  if (d.model->seeded_blocks == 0 || d.categories.of.empty()) return 0;
  const std::unordered_set<uint32_t> stacks = growing_stacks(d);
  const uint32_t first = d.steps.boundaries[d.steps.window_first];
  const uint32_t last = d.steps.boundaries[d.steps.window_last + 1] - 1;
  std::unordered_set<uint64_t> sizes;  // of what stays
  for (const Allocation& a : d.model->allocations) {
    const bool stays = !a.seeded && a.birth >= first && a.birth <= last && a.release > last;
    if (stays && stacks.contains(a.stack)) sizes.insert(a.asked_bytes());
  }
  uint64_t bytes = 0;
  for (size_t i = 0; i < d.categories.of.size(); ++i) {
    const Allocation& a = d.model->allocations[i];
    if (!a.seeded) break;
    if (a.release <= last || !sizes.contains(a.asked_bytes())) continue;
    const bool unknown = a.stack == 0 && !is_of_model(d.categories.of[i]);
    if (unknown || stacks.contains(a.stack)) bytes += a.block_bytes;
  }
  return bytes;
}

// Whether nearly every step computes more gradients than the one before: its backward pass goes
// through the graphs of all steps before, too.
bool goes_further_back(const DeviceEvidence& d) {
  constexpr uint32_t kLeastSteps = 6;
  uint32_t steps = 0;
  uint32_t longer = 0;  // than the step before
  uint64_t before = 0;
  for (uint32_t step = d.steps.window_first; step <= d.steps.window_last; ++step) {
    const BirthRange rows =
        births_within(*d.model, d.steps.boundaries[step], d.steps.boundaries[step + 1]);
    uint64_t births = 0;
    for (size_t i = rows.begin; i < rows.end; ++i) {
      const StackRole role = d.roles->of(d.model->allocations.stack(i));
      births += static_cast<uint64_t>(role == StackRole::kBackward);
    }
    ++steps;
    longer += static_cast<uint32_t>(births > before);
    before = births;
  }
  return steps >= kLeastSteps && longer >= steps - steps / 10;
}

// Whether what grows are activations of many operations.
bool consists_of_graphs(const DeviceEvidence& d) {
  if (!d.categories.has_backward) return false;
  if (goes_further_back(d)) return true;
  double all = 0;
  double forward = 0;
  const std::vector<bool> in_module = module_stacks(d.process->names);
  std::unordered_set<uint32_t> stacks;
  for (const StackGrowth& g : d.steps.growing) {
    all += g.bytes_per_step;
    if (d.roles->of(g.stack) != StackRole::kForward || !in_module[g.stack]) continue;
    forward += g.bytes_per_step;
    stacks.insert(g.stack);
  }
  // One operation's results are what the program keeps, perhaps under no_grad.
  if (forward < 0.5 * all || stacks.size() < 2) return false;
  // Perhaps not every step keeps one.
  const uint32_t first = d.steps.boundaries[d.steps.window_first];
  const uint32_t end = d.steps.boundaries[d.steps.window_last + 1];
  uint64_t blocks = 0;
  std::unordered_set<uint32_t> in_steps;
  for (const Allocation& a : d.model->allocations) {
    const uint32_t step_end = d.steps.end_of_step(a.birth);
    if (a.birth < first || a.birth >= end || a.release <= step_end) continue;
    if (!stacks.contains(a.stack)) continue;
    ++blocks;
    in_steps.insert(step_end);
  }
  return blocks >= kGraphBlocks * std::max<size_t>(in_steps.size(), 1);
}
}  // namespace

uint64_t gained_bytes(const DeviceEvidence& d) {
  return static_cast<uint64_t>(d.steps.growth_bytes_per_step * window_of(d.steps));
}

namespace {
// In a kept window, memory that goes up and down over minutes seems to rise (level_growth.h).
bool goes_up_and_down(const DeviceEvidence& d) {
  const uint64_t now = d.steps.levels[d.steps.window_last].low_bytes;
  return was_as_high(*d.process, d.device, now - std::min(gained_bytes(d) / 4, now),
                     2 * d.steps.period_ns);
}

using Sizes = std::unordered_map<uint64_t, uint64_t>;  // how many blocks have each

// The gradients at the end of one of the last backward passes, the most of these: where memory ran
// out, the last pass may be unfinished.
Sizes gradients_in_use(const DeviceEvidence& d) {
  constexpr size_t kLastPasses = 2;
  const auto& passes = d.backward_passes;
  Sizes most;
  size_t most_blocks = 0;
  for (size_t i = passes.size() - std::min(kLastPasses, passes.size()); i < passes.size(); ++i) {
    Sizes sizes;
    size_t blocks = 0;
    for (size_t row = 0; row < d.categories.of.size(); ++row) {
      if (d.categories.of[row] != Category::kGradient) continue;
      const Allocation& a = d.model->allocations[row];
      if (a.birth > passes[i].last || a.release <= passes[i].last) continue;
      ++sizes[a.asked_bytes()];
      ++blocks;
    }
    if (blocks <= most_blocks) continue;
    most = std::move(sizes);
    most_blocks = blocks;
  }
  return most;
}

// Whether there are gradients that belong to no parameter made since an event: then parameters that
// are older are still trained.
bool trains_older(const DeviceEvidence& d, uint32_t event) {
  Sizes gradients = gradients_in_use(d);
  for (size_t i = d.categories.of.size(); i-- > 0;) {
    if (d.model->allocations.birth(i) <= event) break;
    if (d.categories.of[i] != Category::kParameter) continue;
    const auto found = gradients.find(d.model->allocations.asked_bytes(i));
    if (found != gradients.end() && --found->second == 0) gradients.erase(found);
  }
  return !gradients.empty();
}

// Whether most of what grows are optimizer states, and no parameter has more of them than one
// optimizer makes: layers were unfrozen, added, or used for the first time, step by step. Where
// only new parameters are trained, they are of a new model.
bool is_of_first_states(const DeviceEvidence& d) {
  constexpr uint64_t kMostStates = 3;  // of a parameter: Adam's, with amsgrad
  if (d.roles == nullptr || d.categories.of.empty()) return false;
  double all = 0;
  double states = 0;
  for (const StackGrowth& g : d.steps.growing) {
    all += g.bytes_per_step;
    if (d.roles->of(g.stack) == StackRole::kOptimizerInit) states += g.bytes_per_step;
  }
  if (states <= 0.5 * all) return false;
  const uint32_t first = d.steps.boundaries[d.steps.window_first];
  const uint32_t last = d.steps.boundaries[d.steps.window_last + 1] - 1;
  uint64_t made = 0;
  uint64_t parameters = 0;
  uint64_t older = 0;  // than the growth
  for (size_t i = 0; i < d.categories.of.size(); ++i) {
    const Allocation& a = d.model->allocations[i];
    if (a.birth > last || a.release <= last) continue;
    if (d.roles->of(a.stack) == StackRole::kOptimizerInit) ++made;
    if (d.categories.of[i] != Category::kParameter) continue;
    ++parameters;
    if (a.birth <= first) ++older;
  }
  if (made > kMostStates * parameters) return false;
  return made <= kMostStates * older || trains_older(d, first);
}
}  // namespace

bool grows(const DeviceEvidence& d) {
  if (d.model == nullptr || d.steps.growth_bytes_per_step <= 0) return false;
  const auto matters = [&](uint64_t bytes) {
    return bytes >= kLeastGrowth &&
           static_cast<double>(bytes) >= 0.05 * static_cast<double>(d.peak_bytes());
  };
  const uint64_t gained = gained_bytes(d);
  // A history that began late has only the last steps of a long growth.
  if (!matters(gained) && !matters(gained + older_growth(d))) return false;
  return !goes_up_and_down(d) && !is_of_first_states(d);
}

bool grows_towards_failure(const DeviceEvidence& d) {
  if (!d.ran_out() || d.steps.growth_bytes_per_step <= 0 || grows(d)) return false;
  const uint64_t needed = std::max(kLeastGrowth, d.model->failures.back().requested_bytes);
  return gained_bytes(d) >= needed && !consists_of_graphs(d) && !goes_up_and_down(d) &&
         !is_of_first_states(d);
}

bool grows_by_graphs(const DeviceEvidence& d) {
  return grows(d) && consists_of_graphs(d);
}

namespace {
// By stack: the steps in which it allocates, by their ends, and its last allocation in each.
using Generations = std::unordered_map<uint32_t, std::map<uint32_t, uint32_t>>;

// When the same line has allocated its successor; kNever: there is none.
uint32_t succeeded_at(const Generations& generations, const Allocation& a, uint32_t end_of_step) {
  const auto& steps = generations.at(a.stack);
  const auto next = steps.upper_bound(end_of_step);
  return next == steps.end() ? kNever : next->second;
}
}  // namespace

bool replaces_its_block(const DeviceEvidence& d, const StackGrowth& growth) {
  constexpr uint32_t kLeastBlocks = 4;
  if (growth.held_count != 1) return false;
  uint32_t blocks = 0;
  uint32_t larger = 0;  // than the one before
  uint64_t last = 0;
  for (const Allocation& a : d.model->allocations) {
    if (a.stack != growth.stack || a.seeded) continue;
    ++blocks;
    larger += a.block_bytes > last ? 1U : 0U;
    last = a.block_bytes;
  }
  return blocks >= kLeastBlocks && larger >= blocks - blocks / 8;
}

uint64_t saved_by_letting_go(const DeviceEvidence& d, Keep keep) {
  const std::unordered_set<uint32_t> stacks = growing_stacks(d);
  std::unordered_set<uint32_t> replacing;  // whose newest block holds everything
  for (const StackGrowth& g : d.steps.growing) {
    if (keep == Keep::kNewest && replaces_its_block(d, g)) replacing.insert(g.stack);
  }
  const auto is_growth = [&](const Allocation& a) {
    return !a.seeded && stacks.contains(a.stack) && a.birth >= d.steps.boundaries.front();
  };
  // Gradients are autograd's, and those of the last step are needed.
  const auto may_move = [&](const Allocation& a) {
    const StackRole role = d.roles->of(a.stack);
    return role == StackRole::kUser || role == StackRole::kForward;
  };
  Generations generations;
  for (const Allocation& a : d.model->allocations) {
    if (is_growth(a)) generations[a.stack][d.steps.end_of_step(a.birth)] = a.birth;
  }
  std::unordered_set<uint64_t> sizes;  // of what stays
  Rehearsal released(*d.model);
  for (const Allocation& a : d.model->allocations) {
    if (!is_growth(a)) continue;
    const uint32_t end = d.steps.end_of_step(a.birth);
    released.leave_out_from(a, replacing.contains(a.stack)       ? a.birth
                               : keep == Keep::kNewest           ? succeeded_at(generations, a, end)
                               : keep == Keep::kNothing          ? end
                               : may_move(a) && a.release >= end ? a.birth + 1
                                                                 : a.release);
    if (a.release == kNever) sizes.insert(a.asked_bytes());
  }
  // Blocks of the same sizes that are older than the history and are neither parameters nor states.
  for (size_t i = 0; i < d.categories.of.size(); ++i) {
    const Allocation& a = d.model->allocations[i];
    if (!a.seeded) break;
    if (!is_of_model(d.categories.of[i]) && a.release == kNever &&
        sizes.contains(a.asked_bytes())) {
      released.leave_out(a);
    }
  }
  return released.saved_bytes();
}

std::string advice_on_replacing(std::string_view places) {
  return fmt::format(
      "{} replaces its block by a larger one each time, as torch.cat onto a history does, and both "
      "are there meanwhile: bound it, or collect it in host memory",
      places);
}

uint64_t saved_without(const AllocationHistory& model, uint32_t stack) {
  Rehearsal without(model);
  for (const Allocation& a : model.allocations) {
    if (a.stack == stack && !a.seeded) without.leave_out(a);
  }
  return without.saved_bytes();
}

namespace {
// After each step, from the one before the first on: the bytes of the lines that grow.
std::vector<uint64_t> held_after_steps(const DeviceEvidence& d) {
  const std::unordered_set<uint32_t> stacks = growing_stacks(d);
  const Steps& steps = d.steps;
  const auto first_end_after = [&](uint32_t event) {
    return static_cast<size_t>(
        std::upper_bound(steps.boundaries.begin(), steps.boundaries.end(), event) -
        steps.boundaries.begin());
  };
  std::vector<uint64_t> change(size_t{steps.window_last} + 3, 0);  // modulo 2^64
  for (const Allocation& a : d.model->allocations) {
    if (!stacks.contains(a.stack)) continue;
    change[std::min(first_end_after(a.birth), change.size() - 1)] += a.block_bytes;
    change[std::min(first_end_after(a.release), change.size() - 1)] -= a.block_bytes;
  }
  for (size_t i = 1; i < change.size(); ++i) change[i] += change[i - 1];
  change.pop_back();
  return change;
}
}  // namespace

std::optional<Stairs> stairs_of(const DeviceEvidence& d, double most_rises) {
  constexpr uint64_t kLeastRises = 3;
  if (d.steps.growing.empty()) return std::nullopt;
  const std::vector<uint64_t> held = held_after_steps(d);
  Stairs stairs;
  uint64_t risen = 0;
  uint64_t fallen = 0;
  std::vector<std::pair<size_t, uint64_t>> rises;  // step, bytes
  for (size_t i = size_t{d.steps.window_first} + 1; i < held.size(); ++i) {
    ++stairs.steps;
    if (held[i] > held[i - 1]) {
      risen += held[i] - held[i - 1];
      rises.emplace_back(i, held[i] - held[i - 1]);
    } else {
      fallen += held[i - 1] - held[i];
    }
  }
  if (10 * fallen > risen) return std::nullopt;
  std::erase_if(rises, [&](const auto& rise) { return 2 * rise.second * stairs.steps < risen; });
  stairs.rises = rises.size();
  if (stairs.rises < kLeastRises ||
      static_cast<double>(stairs.rises) > most_rises * static_cast<double>(stairs.steps)) {
    return std::nullopt;
  }
  std::vector<uint64_t> sizes;
  for (const auto& [step, bytes] : rises) sizes.push_back(bytes);
  std::sort(sizes.begin(), sizes.end());
  stairs.bytes = sizes[sizes.size() / 2];
  // The first and the last of them may be different.
  const size_t few = (sizes.size() + 9) / 10;
  const uint64_t least = sizes[std::min(few, sizes.size() / 2)];
  stairs.vary = sizes[sizes.size() - 1 - std::min(few, sizes.size() / 2)] > least + least / 4;
  if (stairs.vary) stairs.bytes = sizes.back();
  std::map<uint64_t, uint64_t> gaps;
  for (size_t i = 1; i < rises.size(); ++i) ++gaps[rises[i].first - rises[i - 1].first];
  for (const auto& [gap, times] : gaps) {
    if (times + few >= rises.size() - 1 && 2 * times >= rises.size()) stairs.every = gap;
  }
  return stairs;
}

void add_stairs(const DeviceEvidence& d, Finding& f) {
  const std::optional<Stairs> stairs = stairs_of(d);
  if (!stairs) return;
  f.evidence.emplace_back("growing_steps", stairs->rises);
  f.evidence.emplace_back("bytes_per_growing_step", stairs->bytes);
}

std::string rate_text(const DeviceEvidence& d, std::string_view per_step) {
  const std::optional<Stairs> stairs = stairs_of(d);
  if (!stairs) {
    return size_text(static_cast<uint64_t>(d.steps.growth_bytes_per_step)) + std::string(per_step);
  }
  const std::string size = (stairs->vary ? "up to " : "") + size_text(stairs->bytes);
  if (stairs->every == 0) {
    return fmt::format("{} in {} of {} {}s", size, grouped(stairs->rises), grouped(stairs->steps),
                       step_word(d));
  }
  const uint64_t last = stairs->every % 10;
  const bool teen = stairs->every / 10 % 10 == 1;
  return fmt::format("{} in every {}{} {}", size, grouped(stairs->every),
                     teen        ? "th"
                     : last == 1 ? "st"
                     : last == 2 ? "nd"
                     : last == 3 ? "rd"
                                 : "th",
                     step_word(d));
}

bool grew_before_history(const DeviceEvidence& d) {
  return !d.steps.growing.empty() && older_growth(d) != 0;
}

std::optional<FirstGrowth> first_growth(const DeviceEvidence& d) {
  if (d.steps.growing.empty() || !d.steps.before || grew_before_history(d)) return std::nullopt;
  const std::vector<uint64_t> held = held_after_steps(d);
  if (held.back() <= held.front()) return std::nullopt;
  size_t kept = 1;  // until then nothing was
  while (held[kept] <= held.front()) ++kept;
  // Or the level stayed as it was up to a bend, where it is farthest below a steady rise.
  const double rise = static_cast<double>(held.back() - held.front());
  const auto below = [&](size_t i) {
    return static_cast<double>(i) * rise / static_cast<double>(held.size() - 1) +
           static_cast<double>(held.front()) - static_cast<double>(held[i]);
  };
  size_t bend = kept;
  for (size_t i = kept; i < held.size(); ++i) bend = below(i) > below(bend) ? i : bend;
  const double before_bend = static_cast<double>(held[bend]) - static_cast<double>(held[kept]);
  // It may have begun before the history.
  if (d.model->seeded_blocks != 0 && kept <= 2) return std::nullopt;
  const bool bends = bend != kept && below(bend) > 0.1 * rise && before_bend <= 0.1 * rise;
  return FirstGrowth{d.steps.number(bends ? bend : kept - 1), !bends};
}

std::string since_text(const DeviceEvidence& d, const std::optional<FirstGrowth>& first) {
  if (grew_before_history(d)) return ", from before the recording on";
  if (!first) return "";
  return first->step <= 1 ? ", from the first one on"
                          : fmt::format(", from {}step {} on", first->exact ? "" : "about ",
                                        grouped(first->step));
}

std::optional<uint64_t> steps_until_full(const DeviceEvidence& d) {
  // The others on a shared card may grow as well.
  if (!grows(d) || d.limit.bytes == 0 || d.ran_out() || d.shares_card) return std::nullopt;
  // The last step may be unfinished, with its peak still to come.
  const auto& levels = d.steps.levels;
  const uint64_t before = levels.size() < 2 ? 0 : levels[levels.size() - 2].high_bytes;
  const uint64_t high = std::max(before, levels.back().high_bytes);
  // A smaller card that was asked about would have been full in the recording.
  if (std::max(high, d.model->reserved_peak.bytes) > d.limit.bytes) return std::nullopt;
  const double left = static_cast<double>(d.limit.bytes - high) / d.steps.growth_bytes_per_step;
  if (left > 1e12) return std::nullopt;
  return static_cast<uint64_t>(left);
}

uint64_t full_at_step(const DeviceEvidence& d) {
  const std::optional<uint64_t> left = steps_until_full(d);
  if (!left) return 0;
  return d.steps.before ? *d.steps.before + d.steps.count() + *left : 0;
}

std::string_view step_word(const DeviceEvidence& d) {
  const bool repeats = d.steps.source == StepSource::kRhythm || d.steps.source == StepSource::kLoop;
  return repeats && d.process->framework_on(d.device) == nullptr ? "repetition" : "step";
}

std::string full_text(const DeviceEvidence& d, bool endless) {
  const std::optional<uint64_t> left = steps_until_full(d);
  if (!left) return "";
  const uint64_t step = full_at_step(d);
  const std::string_view word = step_word(d);
  return fmt::format("; {} {} {}", endless ? "at this rate" : "if it goes on like this,",
                     d.limit.source == LimitSource::kFraction ? "the memory fraction is used up"
                                                              : "the card is full",
                     step != 0 ? fmt::format("at about {} {}", word, grouped(step))
                               : fmt::format("in about {} more {}{}", grouped(*left), word,
                                             *left == 1 ? "" : "s"));
}

size_t calls_of_model(const DeviceEvidence& d) {
  const AllocationColumns& all = d.model->allocations;
  size_t runs = 0;  // of forward passes without another allocation in between
  size_t firsts = 0;
  std::optional<uint32_t> first;  // stack
  bool in_pass = false;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all.seeded(i)) continue;
    const bool forward = d.roles->of(all.stack(i)) == StackRole::kForward;
    runs += forward && !in_pass ? 1U : 0U;
    in_pass = forward;
    if (forward && !first) first = all.stack(i);
    firsts += forward && first == all.stack(i) ? 1U : 0U;
  }
  return std::max(runs, firsts);
}

}  // namespace tidemark
