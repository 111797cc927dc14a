#include "viewer/model/trace/cursor.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "analysis/wording.h"
#include "viewer/model/ticks.h"

namespace tidemark::view {

namespace {

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

std::string text_of_age(std::optional<int64_t> age_ns) {
  return age_ns ? span_text(static_cast<double>(*age_ns)) + " old" : "older than the recording";
}

}  // namespace

Instant same_instant(const Model& before, const Instant& instant, const Model& after) {
  Instant there{same_lane(before, instant.lane, after), 0};
  if (instant.lane >= before.lanes.size() || there.lane >= after.lanes.size()) return there;
  const AllocationHistory& old = *before.lanes[instant.lane].memory;
  const AllocationHistory& now = *after.lanes[there.lane].memory;
  if (instant.event >= old.event_count()) return there;
  const int64_t time = old.time_ns[instant.event];
  // New events come after the known ones, so the event mostly keeps its number.
  if (instant.event < now.event_count() && now.time_ns[instant.event] == time) {
    there.event = instant.event;
  } else {
    now.state_event_at(time, there.event);
  }
  return there;
}

std::string Cursor::event_text(const Model& model) const {
  if (lane() >= model.lanes.size()) return "";
  const AllocationHistory& memory = *model.lanes[lane()].memory;
  if (memory.event_count() == 0) return "";
  return fmt::format("event {} of {}", grouped(memory.event_number(event())),
                     grouped(memory.event_number(memory.event_count() - 1)));
}

double Cursor::time(const Model& model) const {
  if (at_.lane >= model.lanes.size()) return 0;
  if (between_events_) return *between_events_;
  const AllocationHistory& m = *model.lanes[at_.lane].memory;
  if (at_.event >= m.event_count()) return 0;
  return since_start(model, m.time_ns[at_.event]);
}

std::string Cursor::age_text(const Model& model, const Allocation& block) const {
  return text_of_age(age_ns(model, block));
}

std::string Cursor::age_text(const Model& model, const SegmentChange& creation) const {
  return text_of_age(age_ns(model, creation.time_ns, creation.seeded));
}

bool Cursor::event_in_lane(const Model& model, uint32_t lane, uint32_t& out) const {
  if (lane >= model.lanes.size()) return false;
  const AllocationHistory& m = *model.lanes[lane].memory;
  if (lane == at_.lane) {
    out = at_.event;
    return at_.event < m.event_count();
  }
  return m.state_event_at(absolute_ns(model, time(model)), out);
}

const Moment& Cursor::moment(const Model& model) {
  return *maker_->get(model, at_);
}

bool Cursor::shows_change(const Model& model) {
  if (!maker_->is_slow(model, at_)) return true;
  const Moment& shown = moment(model);
  return !shown.known || shown.event == at_.event;
}

std::shared_ptr<const Moment> Cursor::share_moment(const Model& model) {
  return maker_->get(model, at_);
}

bool Cursor::set_event(const Model& model, const Instant& to) {
  if (to.lane >= model.lanes.size()) return false;
  const AllocationHistory& m = *model.lanes[to.lane].memory;
  const uint32_t last = std::max(m.event_count(), 1U) - 1;
  const Instant known{to.lane, std::clamp(to.event, std::min(m.first_state(), last), last)};
  const bool moves = between_events_.has_value() || known != at_;
  between_events_.reset();
  at_ = known;
  return moves;
}

bool Cursor::set_time(const Model& model, uint32_t lane, double time) {
  if (lane >= model.lanes.size()) return false;
  const AllocationHistory& m = *model.lanes[lane].memory;
  uint32_t found = 0;
  const bool known = m.state_event_at(absolute_ns(model, time), found);
  const bool moves = set_event(model, {lane, found});
  // Before the first event there is no state to show: the cursor stays at it.
  if (!known && m.event_count() != 0) return moves;
  between_events_ = std::clamp(time, 0.0, std::max(model.span_ns(), 0.0));
  return true;
}

const OomPoint* oom_at(const Model& model, const Cursor& cursor) {
  const OomPoint* found = nullptr;
  for (const OomPoint& oom : model.ooms) {
    if (oom.lane != cursor.lane() || oom.event != cursor.event()) continue;
    found = &oom;
    if (oom.time_ns == cursor.time_ns(model)) break;
  }
  return found;
}

void Cursor::carry_over(const Model& before, const Model& after) {
  at_ = same_instant(before, at_, after);
  if (between_events_) {
    *between_events_ += static_cast<double>(before.trace.start_ns - after.trace.start_ns);
  }
  maker_->forget();
}

}  // namespace tidemark::view
