#include "viewer/model/trace/comparison.h"

#include <utility>

#include "viewer/model/ticks.h"

namespace tidemark::view {

namespace {

// The lane of the same rank and device in another trace; none: UINT32_MAX.
uint32_t matching_lane(const Model& model, uint32_t lane, const Model& there) {
  const auto key = [](const Model& m, const Lane& l) {
    return std::pair(m.process_of(l).info.rank, l.memory->device);
  };
  const auto wanted = key(model, model.lanes[lane]);
  for (uint32_t i = 0; i < there.lanes.size(); ++i) {
    if (key(there, there.lanes[i]) == wanted) return i;
  }
  return UINT32_MAX;
}

}  // namespace

double Comparison::offset(const Model& model) const {
  if (other_ == nullptr || !by_clock_) return 0;
  return since_start(model, other_->trace.start_ns);
}

const Model& Comparison::model_of_reference(const Model& model) const {
  return reference_ && reference_->other && other_ != nullptr ? *other_ : model;
}

double Comparison::time(const Model& model) const {
  const Model& there = model_of_reference(model);
  if (!reference_ || reference_->lane >= there.lanes.size()) return 0;
  const AllocationHistory& m = *there.lanes[reference_->lane].memory;
  if (reference_->event >= m.event_count()) return 0;
  const double at = since_start(there, m.time_ns[reference_->event]);
  return at + (reference_->other ? offset(model) : 0);
}

std::string Comparison::text(const Model& model, const Cursor& cursor) const {
  const Model& there = model_of_reference(model);
  if (!reference_ || reference_->lane >= there.lanes.size()) return "";
  const double at = time(model) - (reference_->other ? offset(model) : 0);
  const std::string instant = instant_text(at, there.span_ns());
  if (!reference_->other && reference_->lane == cursor.lane()) return "since " + instant;
  const std::string trace = reference_->other ? name_beside(there, model) + ", " : "";
  return "against " + trace + there.lanes[reference_->lane].name + " at " + instant;
}

std::optional<Compared> Comparison::compared(const Model& model, const Cursor& cursor) {
  if (!reference_ || (reference_->other && other_ == nullptr)) return std::nullopt;
  const Instant at{reference_->lane, reference_->event};
  if (!reference_->other && at == Instant{cursor.lane(), cursor.event()}) return std::nullopt;
  const Model& there = model_of_reference(model);
  if (at.lane >= there.lanes.size()) return std::nullopt;
  const std::shared_ptr<const Moment>& moment = maker_->get(there, at);
  if (!moment->known) return std::nullopt;
  return Compared{there, there.lanes[at.lane], *moment};
}

std::optional<Overlay> Comparison::overlay_of(const Model& model, const Cursor& cursor,
                                              uint32_t lane) const {
  if (reference_ && lane == cursor.lane() && !(reference_->other && other_ == nullptr)) {
    const Model& there = model_of_reference(model);
    const bool itself = !reference_->other && reference_->lane == lane;
    if (!itself && reference_->lane < there.lanes.size()) {
      return Overlay{&there, reference_->lane, reference_->other ? offset(model) : 0};
    }
  }
  if (other_ == nullptr) return std::nullopt;
  const uint32_t same = matching_lane(model, lane, *other_);
  if (same == UINT32_MAX) return std::nullopt;
  return Overlay{other_.get(), same, offset(model)};
}

void Comparison::set(const Model& model, const Cursor& cursor,
                     const std::optional<Reference>& reference) {
  reference_ = reference;
  follow(model, cursor);
}

void Comparison::set_other(std::shared_ptr<const Model> other) {
  if (reference_ && reference_->other) reference_.reset();
  // The next trace may get the address of this one, by which the moment is recognised.
  maker_->forget();
  other_ = std::move(other);
  by_clock_ = false;
}

Reference Comparison::peak_of_other(const Model& model, const Cursor& cursor) const {
  Reference peak{true, 0, 0, false};
  if (const uint32_t same = matching_lane(model, cursor.lane(), *other_); same != UINT32_MAX) {
    peak.lane = same;
  }
  peak.event = other_->lanes[peak.lane].memory->allocated_peak.event;
  return peak;
}

void Comparison::follow(const Model& model, const Cursor& cursor) {
  if (!reference_ || !reference_->follows) return;
  const Model& there = model_of_reference(model);
  if (reference_->lane >= there.lanes.size()) return;
  const double at = cursor.time(model) - (reference_->other ? offset(model) : 0);
  there.lanes[reference_->lane].memory->state_event_at(absolute_ns(there, at), reference_->event);
}

void Comparison::carry_over(const Model& before, const Model& after) {
  maker_->forget();
  if (!reference_ || reference_->other) return;
  const Instant there = same_instant(before, {reference_->lane, reference_->event}, after);
  reference_->lane = there.lane;
  reference_->event = there.event;
}

}  // namespace tidemark::view
