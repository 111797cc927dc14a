#include "viewer/model/trace/moment_maker.h"

#include <algorithm>
#include <iterator>

namespace tidemark::view {

namespace {

// So many blocks take about a millisecond.
constexpr uint64_t kManyBlocks = 8'000;

}  // namespace

std::shared_ptr<const Moment> make_moment(const Model& model, const Instant& instant) {
  auto moment = std::make_shared<Moment>();
  moment->lane = instant.lane;
  moment->event = instant.event;
  if (instant.lane < model.lanes.size()) {
    const Lane& lane = model.lanes[instant.lane];
    moment->state = lane.states.state_after(instant.event);
    moment->layout = MapLayout(*lane.memory, moment->state);
    moment->live = sums_of_live(*lane.memory, model.process_of(lane).names, moment->state);
  }
  return moment;
}

std::shared_ptr<const Moment> unknown_moment(const Model& model, const Instant& instant) {
  auto moment = std::make_shared<Moment>();
  moment->lane = instant.lane;
  moment->event = instant.event;
  moment->known = false;
  if (instant.lane < model.lanes.size()) {
    const AllocationHistory& memory = *model.lanes[instant.lane].memory;
    moment->state.event = instant.event;
    moment->state.totals = memory.totals_after(instant.event);
    if (instant.event < memory.event_count()) moment->state.time_ns = memory.time_ns[instant.event];
    moment->layout = MapLayout(memory, moment->state);
  }
  return moment;
}

bool MomentMaker::is_slow(const Model& model, const Instant& at) const {
  if (patient || at.lane >= model.lanes.size() || model.weak_from_this().expired()) return false;
  const DataColumn<StateKeyframe>& frames = model.lanes[at.lane].memory->states;
  const auto* after =
      std::upper_bound(frames.begin(), frames.end(), at.event,
                       [](uint32_t e, const StateKeyframe& f) { return e < f.event; });
  if (after == frames.begin()) return false;
  // The keyframe's blocks, and the events since.
  const StateKeyframe& frame = *std::prev(after);
  return frame.live_count + uint64_t{at.event - frame.event} / 2 > kManyBlocks;
}

const std::shared_ptr<const Moment>& MomentMaker::get(const Model& model, const Instant& at) {
  if (has(model, at)) return shown_;
  if (!is_slow(model, at)) {
    waiting_ = false;
    shown_ = make_moment(model, at);
    of_ = &model;
    return shown_;
  }
  if (!waiting_ || wanted_of_ != &model || wanted_ != at) {
    waiting_ = true;
    wanted_ = at;
    wanted_of_ = &model;
    work_.wish([held = model.shared_from_this(), at] { return make_moment(*held, at); }, false);
  }
  if (shown_ == nullptr || of_ != &model || shown_->lane != at.lane) {
    shown_ = unknown_moment(model, at);
    of_ = &model;
  }
  return shown_;
}

bool MomentMaker::poll() {
  work_.poll();
  if (!waiting_ || work_.busy()) return false;
  waiting_ = false;
  shown_ = work_.value();
  of_ = wanted_of_;
  return true;
}

void MomentMaker::forget() {
  waiting_ = false;
  shown_.reset();
  of_ = nullptr;
}

}  // namespace tidemark::view
