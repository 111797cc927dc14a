#include "viewer/model/stack/steps_apart.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/wording.h"
#include "viewer/model/stack/step_pair.h"

namespace tidemark::view {

namespace {

std::optional<uint64_t> peak_bytes(const Model& model, const Lane& lane, uint32_t step) {
  const auto event = peak_of_step(*lane.memory, model.steps_of(lane), step);
  if (!event) return std::nullopt;
  return lane.memory->totals_after(*event).allocated;
}

// What the report says of the growth of one rank, in its own times.
std::string own_growth(const Model& model, const Lane& lane) {
  const ProcessModel& process = model.process_of(lane);
  for (const Finding& f : model.report.findings) {
    const bool grows = f.id == "creep" || f.id == "retained_graph";
    if (grows && f.device == lane.device() &&
        f.concerns(process.info.rank, process.info.pid, process.file)) {
      return f.summary;
    }
  }
  return "";
}

}  // namespace

std::optional<StepsApart> steps_apart(const Model& model, const Lane& lane, const Lane& other) {
  const Steps& steps = model.steps_of(lane);
  const Steps& others = model.steps_of(other);
  if (steps.count() == 0 || others.count() == 0 || steps.number(0) != others.number(0)) {
    return std::nullopt;
  }
  std::optional<StepsApart> apart;
  const uint32_t peak = lane.memory->allocated_peak.event;
  for (uint32_t s = 0; s < std::min(steps.count(), others.count()); ++s) {
    if (s != 0 && steps.boundaries[s] > peak) break;
    const auto mine = peak_bytes(model, lane, s);
    const auto theirs = peak_bytes(model, other, s);
    if (!mine || !theirs) continue;
    const bool above = *mine > *theirs && *mine - *theirs >= *theirs / 10;
    if (!above) {
      apart.reset();
    } else if (!apart) {
      apart = StepsApart{s, *mine, *theirs};
    }
  }
  return apart;
}

std::string since_which_step(const Model& model, const Lane& lane, const Lane& other) {
  const auto apart = steps_apart(model, lane, other);
  if (!apart) {
    const std::string growth = own_growth(model, lane);
    return growth.empty() ? "since when cannot be told: the clocks of the ranks are not known"
                          : fmt::format("of {} alone: {}", lane.name, growth);
  }
  const auto [mine, theirs] = size_texts(apart->bytes, apart->other_bytes);
  return fmt::format("{} is above {} from {} on: {} against {} at the peaks of that step",
                     lane.name, other.name, model.steps_of(lane).name(apart->first), mine, theirs);
}

}  // namespace tidemark::view
