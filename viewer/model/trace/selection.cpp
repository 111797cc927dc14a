#include "viewer/model/trace/selection.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "viewer/model/ticks.h"

namespace tidemark::view {

namespace {

// A view narrower than this shows nothing new: times are whole nanoseconds.
constexpr double kLeastSpanNs = 20;
// Room around the trace, as a share of it.
constexpr double kMargin = 0.02;

double full_span(const Model& model) {
  return std::max(model.span_ns(), 1e3);
}

// One grey for nearly everything tells nothing.
bool mostly_unknown(const Model& model, const Moment& moment) {
  if (moment.lane >= model.lanes.size()) return false;
  uint64_t unknown = 0;
  uint64_t all = 0;
  for (const uint32_t i : moment.state.live) {
    const Allocation& a = model.lanes[moment.lane].memory->allocations[i];
    all += a.block_bytes;
    if (a.category == Category::kUnknown) unknown += a.block_bytes;
  }
  return unknown > all - all / 10;
}

}  // namespace

ColourBy Selection::usual_colour(const Model& model) {
  const bool only_driver =
      !model.lanes.empty() && std::all_of(model.lanes.begin(), model.lanes.end(),
                                          [](const Lane& l) { return l.of_driver; });
  const bool owners_differ =
      only_driver && std::any_of(model.lanes.begin(), model.lanes.end(),
                                 [](const Lane& l) { return l.owners.size() > 1; });
  return owners_differ            ? ColourBy::kOwner
         : model.categories_known ? ColourBy::kCategory
                                  : ColourBy::kStack;
}

void Selection::blocks_changed(const Model& model) {
  if (colour == first_colour_) colour = first_colour_ = usual_colour(model);
  moment_.reset();
  compared_.reset();
  ++version_;
}

void Selection::reset(const Model& model) {
  // What panels keep by version is of the trace before.
  const uint64_t version = version_ + 1;
  *this = Selection();
  version_ = version;
  colour = first_colour_ = usual_colour(model);
  fit(model);
  if (model.ooms.empty()) {
    // The lane that came nearest to its card's limit, or that held most.
    for (uint32_t i = 0; i < model.lanes.size(); ++i) {
      if (model.lanes[i].memory->allocated_peak.bytes >
          model.lanes[lane].memory->allocated_peak.bytes) {
        lane = i;
      }
    }
    go_to_peak(model);
  } else {
    go_to_oom_at(model, 0);
  }
  fit(model);
  if (colour == ColourBy::kCategory && mostly_unknown(model, moment(model))) {
    colour = ColourBy::kStack;
  }
}

namespace {

// The lane of the same device of the same process; the first when it is gone.
uint32_t same_lane(const Model& before, uint32_t lane, const Model& after) {
  if (lane >= before.lanes.size()) return 0;
  const auto key = [](const Model& m, const Lane& l) {
    const Process& p = m.process_of(l).info;
    return std::tuple(p.rank, p.pid, l.memory->device);
  };
  const auto wanted = key(before, before.lanes[lane]);
  for (uint32_t i = 0; i < after.lanes.size(); ++i) {
    if (key(after, after.lanes[i]) == wanted) return i;
  }
  return 0;
}

// The event of the same time. Events are only added behind those that are there, so that mostly it
// has the same number.
uint32_t same_event(const Model& before, uint32_t lane, uint32_t event, const Model& after,
                    uint32_t new_lane) {
  if (lane >= before.lanes.size() || new_lane >= after.lanes.size()) return 0;
  const AllocationHistory& old = *before.lanes[lane].memory;
  const AllocationHistory& now = *after.lanes[new_lane].memory;
  if (event >= old.event_count()) return 0;
  const int64_t time = old.time_ns[event];
  if (event < now.event_count() && now.time_ns[event] == time) return event;
  uint32_t found = 0;
  now.event_at(time, found);
  return found;
}

}  // namespace

void Selection::carry_over(const Model& before, const Model& after) {
  const double old_end = end_of(before);
  const bool whole = view.begin <= 0 && view.end >= old_end;
  const bool at_end = view.end >= old_end;
  const uint32_t old_lane = lane;
  lane = same_lane(before, old_lane, after);
  event = same_event(before, old_lane, event, after, lane);
  if (compare && !compare->other) {
    const uint32_t there = same_lane(before, compare->lane, after);
    compare->event = same_event(before, compare->lane, compare->event, after, there);
    compare->lane = there;
  }
  // Numbers of blocks and kernels may change with what came; they are chosen anew.
  forget_details();
  moment_.reset();
  compared_.reset();
  ++version_;
  const auto shift = static_cast<double>(before.trace.start_ns - after.trace.start_ns);
  view = {view.begin + shift, view.end + shift};
  if (between_events_) *between_events_ += shift;
  if (whole) {
    fit(after);
  } else if (at_end) {
    const double by = end_of(after) - (old_end + shift);
    view = {view.begin + by, view.end + by};
  }
}

double Selection::end_of(const Model& model) const {
  const double own = full_span(model);
  if (other == nullptr) return own;
  // Runs of different days have no time together: each is looked at by itself.
  const double offset = other_offset(model);
  const double theirs = offset + full_span(*other);
  return offset < own && theirs > 0 ? std::max(own, theirs) : own;
}

VisibleRange Selection::whole(const Model& model) const {
  const double end = end_of(model);
  return {-kMargin * end, end * (1 + kMargin)};
}

void Selection::fit(const Model& model) {
  view = whole(model);
}

void Selection::show(const Model& model, double begin, double end) {
  const double full = end_of(model);
  const double span = std::clamp(end - begin, kLeastSpanNs, full * (1 + 2 * kMargin));
  // Half of the window may hang over either end of the trace, no more.
  const double middle = std::clamp((begin + end) / 2, 0.0, full);
  const bool all = span >= full;
  const double at = all ? full / 2 : middle;
  view = {at - span / 2, at + span / 2};
}

void Selection::zoom(const Model& model, double at, double factor) {
  const double span =
      std::clamp(view.span() * factor, kLeastSpanNs, end_of(model) * (1 + 2 * kMargin));
  const double share = (at - view.begin) / view.span();
  const double begin = at - share * span;
  show(model, begin, begin + span);
}

void Selection::pan(const Model& model, double share) {
  const double by = view.span() * share;
  show(model, view.begin + by, view.end + by);
}

void Selection::reveal(const Model& model, double time) {
  if (time >= view.begin && time <= view.end) return;
  const double half = view.span() / 2;
  show(model, time - half, time + half);
}

void Selection::set_event(const Model& model, uint32_t new_lane, uint32_t new_event) {
  if (new_lane >= model.lanes.size()) return;
  const uint32_t count = model.lanes[new_lane].memory->event_count();
  new_event = count == 0 ? 0 : std::min(new_event, count - 1);
  if (between_events_) ++version_;
  between_events_.reset();
  if (new_lane == lane && new_event == event) return;
  if (new_lane != lane) {
    allocation.reset();
    hole.reset();
  }
  lane = new_lane;
  event = new_event;
  follow_cursor(model);
  ++version_;
}

void Selection::set_time(const Model& model, uint32_t new_lane, double time) {
  if (new_lane >= model.lanes.size()) return;
  uint32_t found = 0;
  const bool known = model.lanes[new_lane].memory->event_at(absolute_ns(model, time), found);
  set_event(model, new_lane, found);
  // Before the first event there is no state to show: the cursor stays at it.
  const bool empty = model.lanes[new_lane].memory->event_count() == 0;
  if (known || empty) {
    between_events_ = std::clamp(time, 0.0, std::max(model.span_ns(), 0.0));
    follow_cursor(model);
    ++version_;
  }
}

void Selection::forget_details() {
  allocation.reset();
  hole.reset();
  activity.reset();
}

void Selection::choose_allocation(uint32_t chosen) {
  forget_details();
  allocation = chosen;
  detail_wanted = true;
}

void Selection::choose_hole(uint64_t address) {
  forget_details();
  hole = address;
  detail_wanted = true;
}

void Selection::choose_activity(const Model& model, const ActivityRef& ref) {
  forget_details();
  activity = ref;
  detail_wanted = true;
  const ActivityRow& row = model.activity[ref.process].rows[ref.row];
  const uint32_t at = model.lane_of(ref.process, row.device);
  const int64_t begin = row.spans.begin_ns(ref.index);
  if (at == UINT32_MAX) return;
  set_time(model, at, since_start(model, begin));
}

void Selection::step_events(const Model& model, int64_t steps) {
  if (lane >= model.lanes.size()) return;
  const int64_t last = std::max<int64_t>(model.lanes[lane].memory->event_count(), 1) - 1;
  const int64_t to = std::clamp<int64_t>(int64_t{event} + steps, 0, last);
  set_event(model, lane, static_cast<uint32_t>(to));
  reveal(model, time(model));
}

void Selection::go_to_peak(const Model& model) {
  if (lane >= model.lanes.size()) return;
  set_event(model, lane, model.lanes[lane].memory->allocated_peak.event);
  reveal(model, time(model));
}

void Selection::go_to_oom_at(const Model& model, size_t index) {
  const OomPoint& oom = model.ooms[index];
  set_event(model, oom.lane, oom.event);
  // The error came some time after the last change; that is where the cursor belongs.
  const double at = since_start(model, oom.time_ns);
  if (at >= time(model)) {
    between_events_ = at;
    follow_cursor(model);
    ++version_;
  }
  reveal(model, at);
}

bool Selection::go_to_oom(const Model& model, int direction) {
  if (model.ooms.empty()) return false;
  const auto now = static_cast<int64_t>(time(model)) + model.trace.start_ns;
  const auto n = static_cast<int64_t>(model.ooms.size());
  // The cursor stands at the change before an error: errors of this very event count as passed.
  int64_t at = -1;
  for (int64_t i = 0; i < n; ++i) {
    const OomPoint& o = model.ooms[static_cast<size_t>(i)];
    const bool here = o.lane == lane && o.event == event;
    if (here) at = i;
  }
  if (at < 0) {
    const auto after = std::find_if(model.ooms.begin(), model.ooms.end(),
                                    [&](const OomPoint& o) { return o.time_ns > now; });
    const int64_t next = after - model.ooms.begin();
    at = direction > 0 ? next - 1 : next;
  }
  const int64_t to = ((at + direction) % n + n) % n;
  go_to_oom_at(model, static_cast<size_t>(to));
  return true;
}

double Selection::time(const Model& model) const {
  if (lane >= model.lanes.size()) return 0;
  if (between_events_) return *between_events_;
  const AllocationHistory& m = *model.lanes[lane].memory;
  if (event >= m.event_count()) return 0;
  return since_start(model, m.time_ns[event]);
}

bool Selection::event_in_lane(const Model& model, uint32_t index, uint32_t& out) const {
  if (index >= model.lanes.size()) return false;
  const AllocationHistory& m = *model.lanes[index].memory;
  if (index == lane) {
    out = event;
    return event < m.event_count();
  }
  return m.event_at(static_cast<int64_t>(time(model)) + model.trace.start_ns, out);
}

std::shared_ptr<Moment> Selection::make_moment(const Model& model, uint32_t lane, uint32_t at) {
  auto moment = std::make_shared<Moment>();
  moment->lane = lane;
  moment->event = at;
  if (lane < model.lanes.size()) {
    moment->state = model.lanes[lane].states.state_after(at);
    moment->layout = MapLayout(*model.lanes[lane].memory, moment->state);
  }
  return moment;
}

const Moment& Selection::moment(const Model& model) {
  if (moment_ == nullptr || moment_->lane != lane || moment_->event != event) {
    moment_ = make_moment(model, lane, event);
  }
  return *moment_;
}

std::shared_ptr<const Moment> Selection::share_moment(const Model& model) {
  moment(model);
  return moment_;
}

void Selection::compare_from(uint32_t from) {
  compare = Reference{false, lane, from, false};
  ++version_;
}

void Selection::toggle_compare() {
  if (compare) {
    compare.reset();
  } else {
    compare = Reference{false, lane, event, false};
  }
  ++version_;
}

void Selection::compare_with(const Model& model, const Reference& reference) {
  compare = reference;
  follow_cursor(model);
  ++version_;
}

const Model& Selection::referred(const Model& model) const {
  return compare && compare->other && other != nullptr ? *other : model;
}

void Selection::follow_cursor(const Model& model) {
  if (!compare || !compare->follows) return;
  const Model& there = referred(model);
  if (compare->lane >= there.lanes.size()) return;
  const double at = time(model) - (compare->other ? other_offset(model) : 0);
  compare->event = 0;
  there.lanes[compare->lane].memory->event_at(absolute_ns(there, at), compare->event);
}

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

double Selection::other_offset(const Model& model) const {
  if (other == nullptr || !other_by_clock) return 0;
  return since_start(model, other->trace.start_ns);
}

void Selection::set_other(const Model& model, std::shared_ptr<const Model> second) {
  const bool all = view.begin <= 0 && view.end >= end_of(model);
  if (compare && compare->other) compare.reset();
  compared_.reset();  // it is known by the address of its trace, which the next may get
  other = std::move(second);
  other_by_clock = false;
  ++version_;
  if (other == nullptr || other->lanes.empty() || lane >= model.lanes.size()) return;
  // Each at its own peak is what people ask first.
  Reference found{true, 0, 0, false};
  if (const uint32_t same = matching_lane(model, lane, *other); same != UINT32_MAX) {
    found.lane = same;
  }
  found.event = other->lanes[found.lane].memory->allocated_peak.event;
  compare_with(model, found);
  if (all) fit(model);
}

std::optional<Overlay> Selection::overlay_of(const Model& model, uint32_t index) const {
  if (compare && index == lane && !(compare->other && other == nullptr)) {
    const Model& there = referred(model);
    const bool itself = !compare->other && compare->lane == index;
    if (!itself && compare->lane < there.lanes.size()) {
      return Overlay{&there, compare->lane, compare->other ? other_offset(model) : 0};
    }
  }
  if (other == nullptr) return std::nullopt;
  const uint32_t same = matching_lane(model, index, *other);
  if (same == UINT32_MAX) return std::nullopt;
  return Overlay{other.get(), same, other_offset(model)};
}

void Selection::clear_marks() {
  measure.reset();
  search.clear();
  compare.reset();
  forget_details();
  ++version_;
}

double Selection::compared_time(const Model& model) const {
  const Model& there = referred(model);
  if (!compare || compare->lane >= there.lanes.size()) return 0;
  const AllocationHistory& m = *there.lanes[compare->lane].memory;
  if (compare->event >= m.event_count()) return 0;
  const double at = since_start(there, m.time_ns[compare->event]);
  return at + (compare->other ? other_offset(model) : 0);
}

std::string Selection::compared_text(const Model& model) const {
  const Model& there = referred(model);
  if (!compare || compare->lane >= there.lanes.size()) return "";
  const double at = compared_time(model) - (compare->other ? other_offset(model) : 0);
  const std::string instant = instant_text(at, there.span_ns());
  if (!compare->other && compare->lane == lane) return "since " + instant;
  const std::string trace = compare->other ? short_name(there) + ", " : "";
  return "against " + trace + there.lanes[compare->lane].name + " at " + instant;
}

std::optional<Compared> Selection::compared(const Model& model) {
  if (!compare || (compare->other && other == nullptr)) return std::nullopt;
  if (!compare->other && compare->lane == lane && compare->event == event) return std::nullopt;
  const Model& there = referred(model);
  if (compare->lane >= there.lanes.size()) return std::nullopt;
  if (compared_ == nullptr || compared_model_ != &there || compared_->lane != compare->lane ||
      compared_->event != compare->event) {
    compared_ = make_moment(there, compare->lane, compare->event);
    compared_model_ = &there;
  }
  return Compared{there, there.lanes[compare->lane], *compared_};
}

}  // namespace tidemark::view
