#include "viewer/model/stack/step_pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "analysis/stacked/column_samples.h"
#include "analysis/wording.h"
#include "viewer/model/ticks.h"

namespace tidemark::view {

namespace {

// High, low and growth of a step, in bytes. Not what is reserved: all steps until the highest one
// are below it, and all later ones are not.
using Traits = std::array<double, 3>;

Traits traits_of(const MinMaxPyramid& curves, uint32_t first, uint32_t last) {
  const Extremes range = curves.extremes(first, last);
  const auto before = first == 0 ? 0.0 : static_cast<double>(curves.values_after(first - 1)[0]);
  return {static_cast<double>(range.max[0]), static_cast<double>(range.min[0]),
          static_cast<double>(curves.values_after(last - 1)[0]) - before};
}

// The events of a step; empty: it has none.
std::pair<uint32_t, uint32_t> events_of(const AllocationHistory& memory, const Steps& steps,
                                        uint32_t step) {
  const uint32_t count = memory.event_count();
  const uint32_t first = steps.boundaries[step];
  const uint32_t last = step + 1 < steps.boundaries.size() ? steps.boundaries[step + 1] : count;
  return {first, std::min(last, count)};
}

double distance(const Traits& a, const Traits& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum;
}

// In what most; empty: they hardly differ.
std::string difference_text(const Lane& lane, const Steps& steps, const StepPair& pair) {
  constexpr double kHardly = 0.005;  // of the peak
  constexpr const char* kNames[] = {"at its peak", "where it is lowest", "kept at its end"};
  const auto [first, last] = events_of(*lane.memory, steps, pair.ordinary);
  const auto [other_first, other_last] = events_of(*lane.memory, steps, pair.unlike);
  if (first >= last || other_first >= other_last) return "";
  const Traits ordinary = traits_of(lane.curves, first, last);
  const Traits unlike = traits_of(lane.curves, other_first, other_last);
  // What a step keeps is known at its end only.
  const bool finished = std::max(pair.ordinary, pair.unlike) < steps.count();
  size_t most = 0;
  for (size_t t = 1; t < (finished ? ordinary.size() : ordinary.size() - 1); ++t) {
    if (std::abs(unlike[t] - ordinary[t]) > std::abs(unlike[most] - ordinary[most])) most = t;
  }
  const double bytes = unlike[most] - ordinary[most];
  if (std::abs(bytes) <= kHardly * std::max(ordinary[0], unlike[0])) return "";
  return fmt::format("{} {}", signed_size_text(static_cast<int64_t>(bytes)), kNames[most]);
}

// Of the peak of the second, if that of the first is not in one: ", in validation".
std::string phase_of_peak(const Model& model, const Lane& lane, const Steps& steps,
                          const StepPair& pair) {
  const DeviceReport* report = lane.of_driver ? nullptr : model.report_of(lane);
  const auto ordinary = peak_of_step(*lane.memory, steps, pair.ordinary);
  const auto unlike = peak_of_step(*lane.memory, steps, pair.unlike);
  if (report == nullptr || !ordinary || !unlike) return "";
  for (const Phase& phase : report->phase_events) {
    if (phase.kind == PhaseKind::kFirstStep) continue;
    if (phase.holds(*unlike) && !phase.holds(*ordinary)) {
      return fmt::format(", in {}", phase_text(phase.kind));
    }
  }
  return "";
}

}  // namespace

std::optional<uint32_t> peak_of_step(const AllocationHistory& memory, const Steps& steps,
                                     uint32_t step) {
  const auto [first, last] = events_of(memory, steps, step);
  if (first >= last) return std::nullopt;
  // The memory may be highest as the step begins, after the event before it.
  return std::max(highest_in_columns(memory, Curve::kAllocated, {first, last}).events[0], first);
}

StepTitles step_titles(const Model& model, const Lane& lane, const StepPair& pair) {
  const Steps& steps = model.steps_of(lane);
  const std::string ordinary = steps.name(pair.ordinary);
  const std::string unlike = steps.name(pair.unlike);
  std::string difference = difference_text(lane, steps, pair);
  if (!difference.empty()) difference += phase_of_peak(model, lane, steps, pair);
  if (steps_to_compare(*lane.memory, lane.curves, steps) != pair) {
    if (pair.ordinary == pair.unlike) return {ordinary, unlike};
    return {ordinary, difference.empty()
                          ? fmt::format("{}, no different from {}", unlike, ordinary)
                          : fmt::format("{}, against {}: {}", unlike, ordinary, difference)};
  }
  return {ordinary + ", an ordinary one",
          difference.empty() ? unlike + ": no step differs from the others"
                             : fmt::format("{}, least like the others: {}", unlike, difference)};
}

std::optional<StepPair> steps_to_compare(const AllocationHistory& memory,
                                         const MinMaxPyramid& curves, const Steps& steps) {
  std::vector<uint32_t> chosen;
  std::vector<Traits> traits;
  for (uint32_t i = steps.count() > 2 ? 1 : 0; i < steps.count(); ++i) {
    const auto [first, last] = events_of(memory, steps, i);
    if (first >= last) continue;
    chosen.push_back(i);
    traits.push_back(traits_of(curves, first, last));
  }
  if (const uint32_t last = steps.count(); steps.begun(memory.event_count()) > last) {
    const auto [first, end] = events_of(memory, steps, last);
    const Traits of = traits_of(curves, first, end);
    if (std::all_of(traits.begin(), traits.end(), [&](const Traits& t) { return of[0] > t[0]; })) {
      chosen.push_back(last);
      traits.push_back(of);
    }
  }
  if (chosen.size() < 2) return std::nullopt;
  // The ordinary one is nearest to the medians of all.
  Traits middle{};
  for (size_t t = 0; t < middle.size(); ++t) {
    std::vector<double> values;
    for (const Traits& of : traits) values.push_back(of[t]);
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), at, values.end());
    middle[t] = *at;
  }
  size_t ordinary = 0;
  for (size_t i = 1; i < traits.size(); ++i) {
    if (distance(traits[i], middle) < distance(traits[ordinary], middle)) ordinary = i;
  }
  size_t unlike = ordinary == 0 ? 1 : 0;
  for (size_t i = 0; i < traits.size(); ++i) {
    if (i == ordinary) continue;
    if (distance(traits[i], traits[ordinary]) > distance(traits[unlike], traits[ordinary])) {
      unlike = i;
    }
  }
  return StepPair{chosen[ordinary], chosen[unlike]};
}

}  // namespace tidemark::view
