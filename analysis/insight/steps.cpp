#include "analysis/insight/steps.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tidemark {

namespace {

constexpr uint32_t kLeastSteps = 3;

// "Step 12", "iter_12" and "ProfilerStep#12" without their number, in lower case.
std::string unnumbered(std::string_view name) {
  while (!name.empty() && (std::isdigit(static_cast<unsigned char>(name.back())) != 0 ||
                           std::string_view(" _-#:[]()/").find(name.back()) != name.npos)) {
    name.remove_suffix(1);
  }
  std::string text(name);
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// 0: not a mark of a step; otherwise how well it fits.
int mark_rank(const Mark& mark, std::string_view name, std::string_view text) {
  constexpr std::array<std::string_view, 8> kStepNames = {
      "profilerstep", "step",          "iter",  "iteration",
      "train_step",   "training_step", "batch", "train_batch"};
  if (mark.kind == MarkKind::kIteration) return 3;
  if (mark.kind == MarkKind::kOptimizerStep || name.starts_with("Optimizer.step")) return 2;
  return std::find(kStepNames.begin(), kStepNames.end(), text) != kStepNames.end() ? 1 : 0;
}

uint64_t median(std::vector<uint64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The median of the slopes between each value and the one half the window after it: the Theil-Sen
// estimator on n / 2 pairs, which keeps its robustness in linear time.
double robust_slope(const std::vector<double>& values) {
  const size_t half = values.size() / 2;
  if (half == 0) return 0;
  std::vector<double> slopes;
  for (size_t i = 0; i + half < values.size(); ++i) {
    slopes.push_back((values[i + half] - values[i]) / static_cast<double>(half));
  }
  const auto middle = slopes.begin() + static_cast<std::ptrdiff_t>(slopes.size() / 2);
  std::nth_element(slopes.begin(), middle, slopes.end());
  return *middle;
}

// Continued growth: most steps of the window end higher than they began.
bool is_steady(const std::vector<double>& low) {
  size_t up = 0;
  for (size_t i = 1; i < low.size(); ++i) up += low[i] > low[i - 1] ? 1U : 0U;
  return static_cast<double>(up) >= 0.6 * static_cast<double>(low.size() - 1);
}

void measure_water(const AllocationHistory& model, Steps& steps) {
  steps.levels.assign(steps.boundaries.size() - 1, {});
  size_t step = 0;
  const uint32_t begin = steps.boundaries.front();
  uint64_t level = begin == 0 ? 0 : model.totals_after(begin - 1).allocated;
  for (uint32_t e = begin; e < steps.boundaries.back(); ++e) {
    model.passed(e);
    while (e >= steps.boundaries[step + 1]) ++step;
    const uint32_t s = model.subject[e];
    if (model.change[e] == Change::kBirth) level += model.allocations[s].block_bytes;
    if (model.change[e] == Change::kRelease) level -= model.allocations[s].block_bytes;
    StepLevels& levels = steps.levels[step];
    levels.low_bytes = std::min(levels.low_bytes, level);
    levels.high_bytes = std::max(levels.high_bytes, level);
  }
}

// Compares what each stack holds at the two ends of the window.
void measure_growing_stacks(const AllocationHistory& model, Steps& steps) {
  struct Held {
    int64_t gain = 0;
    uint64_t bytes = 0;
    uint64_t count = 0;
  };
  const uint32_t first = steps.boundaries[steps.window_first];
  // After an error everything is freed: what was held up to it counts.
  uint32_t last = steps.boundaries[steps.window_last + 1] - 1;
  if (!model.failures.empty()) last = std::max(first, std::min(last, model.failures.back().event));
  std::unordered_map<uint32_t, Held> held;
  for (const Allocation& a : model.allocations) {
    if (a.birth < first && a.release >= first)
      held[a.stack].gain -= static_cast<int64_t>(a.block_bytes);
    if (a.birth <= last && a.release > last) {
      Held& h = held[a.stack];
      h.gain += static_cast<int64_t>(a.block_bytes);
      h.bytes += a.block_bytes;
      ++h.count;
    }
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
bool has_ended(const Steps& steps) {
  std::vector<uint64_t> lengths;
  for (size_t i = 0; i + 1 < steps.boundaries.size(); ++i) {
    lengths.push_back(steps.boundaries[i + 1] - steps.boundaries[i]);
  }
  const uint64_t last = lengths.back();
  return last > 4 * median(std::move(lengths));
}

// The layers of a model also follow each other in a rhythm, while it is created and in a forward
// pass, but free nothing before the next layer comes. An iteration frees most of what it allocates.
// Only events up to a failure count, as everything is freed after it.
bool gives_back(const AllocationHistory& model, const std::vector<uint32_t>& boundaries) {
  const uint32_t end =
      model.failures.empty() ? model.event_count() : model.failures.front().event + 1;
  uint64_t made = 0;
  uint64_t gone = 0;
  for (const Allocation& a : model.allocations) {
    if (a.seeded || a.birth < boundaries.front() || a.birth >= end) continue;
    made += a.block_bytes;
    if (a.release < end) gone += a.block_bytes;
  }
  return gone >= made / 4;
}

// Whether it is a module that allocates there.
bool is_of_layers(const AllocationHistory& model, const StackRoles& roles,
                  const std::vector<uint32_t>& boundaries) {
  if (boundaries.empty()) return false;
  const uint32_t stack = model.allocations.stack(model.subject[boundaries.back()]);
  return roles.of(stack) == StackRole::kForward;
}

}  // namespace

uint32_t Steps::end_of_step(uint32_t event) const {
  const auto it = std::upper_bound(boundaries.begin(), boundaries.end(), event);
  return it == boundaries.end() ? kNever : *it;
}

std::vector<uint32_t> boundaries_from_marks(const ProcessModel& process,
                                            const AllocationHistory& model) {
  // A program may have several optimizers: the most frequent name marks the step.
  struct Named {
    int rank = 0;
    std::vector<int64_t> times;
  };
  std::map<std::string, Named> names;
  std::map<std::pair<uint32_t, MarkKind>, Named*> known;  // marks are many, their names few
  for (const Mark& mark : process.marks) {
    // The step ends where its optimizer does.
    if (mark.phase == MarkPhase::kBegin) continue;
    const auto [place, fresh] = known.try_emplace({mark.name, mark.kind}, nullptr);
    if (fresh) {
      const std::string_view name = process.names.string(mark.name);
      const std::string text = unnumbered(name);
      if (const int rank = mark_rank(mark, name, text); rank != 0) {
        place->second = &names[text];
        place->second->rank = rank;
      }
    }
    if (place->second != nullptr) place->second->times.push_back(mark.time_ns);
  }
  const Named* best = nullptr;
  for (const auto& [name, named] : names) {
    if (best == nullptr || named.rank > best->rank ||
        (named.rank == best->rank && named.times.size() > best->times.size())) {
      best = &named;
    }
  }
  std::vector<uint32_t> boundaries;
  if (best == nullptr) return boundaries;
  std::vector<int64_t> times = best->times;
  std::sort(times.begin(), times.end());
  for (const int64_t time : times) {
    uint32_t event = 0;
    if (!model.event_at(time, event)) continue;
    const uint32_t next = event + 1;
    if (next < model.event_count() && (boundaries.empty() || boundaries.back() < next)) {
      boundaries.push_back(next);
    }
  }
  return boundaries;
}

void measure_steps(const AllocationHistory& model, Steps& steps) {
  if (steps.boundaries.size() < 2) return;
  model.release_pages();
  measure_water(model, steps);
  std::vector<uint64_t> periods;
  for (size_t i = 0; i + 1 < steps.boundaries.size(); ++i) {
    // The last step may end with the history.
    const uint32_t end = std::min(steps.boundaries[i + 1], model.event_count() - 1);
    periods.push_back(
        static_cast<uint64_t>(model.time_ns[end] - model.time_ns[steps.boundaries[i]]));
  }
  steps.period_ns = static_cast<int64_t>(median(periods));
  if (steps.count() < 5) return;  // too few to measure growth
  if (steps.source != StepSource::kMarks && has_ended(steps)) return;
  // States, caches and lists fill up at the beginning; only later growth counts.
  steps.window_first = std::max<uint32_t>(1, steps.count() * 2 / 5);
  steps.window_last = steps.count() - 1;
  std::vector<double> low;
  for (uint32_t i = steps.window_first; i <= steps.window_last; ++i) {
    low.push_back(static_cast<double>(steps.levels[i].low_bytes));
  }
  const double slope = robust_slope(low);
  if (slope <= 0 || !is_steady(low)) return;
  steps.growth_bytes_per_step = slope;
  measure_growing_stacks(model, steps);
}

Steps find_steps(const ProcessModel& process, const AllocationHistory& model,
                 const StackRoles& roles) {
  Steps steps;
  if (model.event_count() == 0) return steps;
  steps.boundaries = boundaries_from_marks(process, model);
  if (steps.boundaries.size() >= kLeastSteps) {
    steps.source = StepSource::kMarks;
    steps.confidence = 1;
    // The part before the end of the first optimizer step is a separate step that begins with the
    // history.
    if (steps.boundaries.front() != 0) steps.boundaries.insert(steps.boundaries.begin(), 0);
  } else if (steps.boundaries.empty()) {
    // Where an optimizer step was marked only once or twice, another rhythm is that of its layers.
    StepSource source = StepSource::kLoop;
    std::optional<Rhythm> rhythm = boundaries_from_loops(process, model, roles);
    if (!rhythm) {
      source = StepSource::kRhythm;
      rhythm = boundaries_from_rhythm(model);
      if (is_of_layers(model, roles, rhythm->boundaries)) rhythm = Rhythm();
    }
    Rhythm collectives = boundaries_from_collectives(process, model);
    if (collectives.confidence > rhythm->confidence) {
      source = StepSource::kCollectives;
      rhythm = std::move(collectives);
    }
    steps.boundaries = std::move(rhythm->boundaries);
    steps.confidence = rhythm->confidence;
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
  if (steps.source != StepSource::kMarks) steps.boundaries.push_back(model.event_count());
  measure_steps(model, steps);
  return steps;
}

}  // namespace tidemark
