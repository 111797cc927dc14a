#include "viewer/model/trace/selection.h"

#include <algorithm>
#include <utility>

namespace tidemark::view {

namespace {

// So that a trace without length can be shown.
double full_span(const Model& model) {
  return std::max(model.span_ns(), 1e3);
}

// One grey for nearly everything says nothing.
bool mostly_unknown(const Moment& moment) {
  uint64_t unknown = 0;
  uint64_t all = 0;
  for (const CategoryRow& row : moment.live.categories) {
    all += row.bytes;
    if (row.category == Category::kUnknown) unknown += row.bytes;
  }
  return moment.known && unknown > all - all / 10;
}

ColourBy usual_colouring(const Model& model) {
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

uint32_t lane_with_highest_peak(const Model& model) {
  const auto highest =
      std::max_element(model.lanes.begin(), model.lanes.end(), [](const Lane& a, const Lane& b) {
        return a.memory->allocated_peak.bytes < b.memory->allocated_peak.bytes;
      });
  return static_cast<uint32_t>(highest - model.lanes.begin());
}

// The time in which all lanes have had nearly all of their events; empty where there are none.
// Where a request failed, this is about what led to it: a tenth of the events, as of a model that
// was loaded long before, may be earlier.
VisibleRange busy_part(const Model& model) {
  const uint32_t share = model.ooms.empty() ? 100 : 10;
  VisibleRange part{model.span_ns(), 0};
  for (const Lane& lane : model.lanes) {
    const AllocationHistory& memory = *lane.memory;
    const uint32_t count = memory.event_count();
    if (count == 0) continue;
    const uint32_t last = count - 1;
    part.begin = std::min(part.begin, since_start(model, memory.time_ns[count / share]));
    part.end = std::max(part.end, since_start(model, memory.time_ns[last - count / 100]));
  }
  return part;
}

}  // namespace

void Selection::set_wake(const std::function<void()>& wake) {
  cursor.maker_->set_wake(wake);
  comparison.maker_->set_wake(wake);
}

void Selection::be_patient() {
  cursor.maker_->patient = comparison.maker_->patient = true;
}

bool Selection::poll() {
  const bool mine = cursor.maker_->poll();
  const bool theirs = comparison.maker_->poll();
  if (mine || theirs) ++version_;
  return mine || theirs;
}

void Selection::show_at_first(const Model& model) {
  view.fit();
  if (model.job != nullptr || comparison.other() != nullptr) return;
  VisibleRange part = busy_part(model);
  const auto include = [&](double time) {
    part.begin = std::min(part.begin, time);
    part.end = std::max(part.end, time);
  };
  include(cursor.time(model));
  for (const OomPoint& oom : model.ooms) include(since_start(model, oom.time_ns));
  // What comes after an error did not lead to it.
  if (model.ooms.empty()) part.end = view.length_ns();
  if (part.span() <= 0 || part.span() > view.length_ns() * 2 / 3) return;
  view.leave_out_rest(part.begin, part.end);
}

void Selection::reset(const Model& model) {
  // What panels keep by version belongs to the trace before.
  Selection fresh;
  fresh.version_ = version_ + 1;
  fresh.cursor.maker_ = cursor.maker_;
  fresh.comparison.maker_ = comparison.maker_;
  *this = std::move(fresh);
  cursor.forget_moment();
  comparison.forget_moment();
  colouring.by = colouring.suggested = usual_colouring(model);
  update_length(model);
  if (!model.ooms.empty()) {
    go_to_oom_at(model, model.oom_to_show());
  } else if (!model.lanes.empty()) {
    set_event(model, lane_with_highest_peak(model), 0);
    go_to_peak(model);
  }
  show_at_first(model);
  if (colouring.by == ColourBy::kCategory && mostly_unknown(cursor.moment(model))) {
    colouring.by = ColourBy::kStack;
  }
}

void Selection::carry_over(const Model& before, const Model& after) {
  const bool all = view.shows_all();
  const bool end = view.shows_end();
  const double old_length = view.length_ns();
  cursor.carry_over(before, after);
  comparison.carry_over(before, after);
  // New rows may change the numbers of blocks and kernels: they have to be picked again.
  highlights.drop_picked();
  ++version_;
  const auto shift = static_cast<double>(before.trace.start_ns - after.trace.start_ns);
  view.shift(shift);
  update_length(after);
  if (all) {
    view.fit();
  } else if (end) {
    view.shift(view.length_ns() - (old_length + shift));
  }
}

void Selection::blocks_changed(const Model& model) {
  colouring.suggest(usual_colouring(model));
  cursor.forget_moment();
  comparison.forget_moment();
  ++version_;
}

void Selection::update_length(const Model& model) {
  double length = full_span(model);
  if (const Model* other = comparison.other().get(); other != nullptr) {
    // Runs of different days share no time: then the view shows the first one only.
    const double offset = comparison.offset(model);
    const double end = offset + full_span(*other);
    if (offset < length && end > 0) length = std::max(length, end);
  }
  view.set_length(length);
}

void Selection::cursor_moved(const Model& model, uint32_t from_lane) {
  if (cursor.lane() != from_lane) highlights.drop_block_and_hole();
  comparison.follow(model, cursor);
  if (cursor.shows_change(model)) ++version_;  // otherwise poll() does
}

void Selection::set_event(const Model& model, uint32_t lane, uint32_t event) {
  const uint32_t from = cursor.lane();
  if (cursor.set_event(model, {lane, event})) cursor_moved(model, from);
}

void Selection::set_time(const Model& model, uint32_t lane, double time) {
  const uint32_t from = cursor.lane();
  if (cursor.set_time(model, lane, time)) cursor_moved(model, from);
}

void Selection::step_events(const Model& model, int64_t steps) {
  const uint32_t lane = cursor.lane();
  if (lane >= model.lanes.size()) return;
  const int64_t last = std::max<int64_t>(model.lanes[lane].memory->event_count(), 1) - 1;
  const int64_t to = std::clamp<int64_t>(int64_t{cursor.event()} + steps, 0, last);
  set_event(model, lane, static_cast<uint32_t>(to));
  reveal_cursor(model);
}

void Selection::go_to_peak(const Model& model) {
  const uint32_t lane = cursor.lane();
  if (lane >= model.lanes.size()) return;
  set_event(model, lane, model.lanes[lane].memory->allocated_peak.event);
  reveal_cursor(model);
}

void Selection::go_to_oom_at(const Model& model, size_t index) {
  const OomPoint& oom = model.ooms[index];
  set_event(model, oom.lane, oom.event);
  // The error came some time after the last change; the cursor belongs at the error.
  const double at = since_start(model, oom.time_ns);
  if (at >= cursor.time(model)) {
    cursor.set_time_after_event(at);
    cursor_moved(model, oom.lane);
  }
  view.reveal(at);
}

bool Selection::go_to_oom(const Model& model, int direction) {
  if (model.ooms.empty()) return false;
  const auto now = static_cast<int64_t>(cursor.time(model)) + model.trace.start_ns;
  const auto n = static_cast<int64_t>(model.ooms.size());
  int64_t at = -1;
  if (const OomPoint* here = oom_at(model, cursor); here != nullptr) at = here - model.ooms.data();
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

void Selection::set_reference(const Model& model, const std::optional<Reference>& reference) {
  comparison.set(model, cursor, reference);
  ++version_;
}

void Selection::toggle_compare(const Model& model) {
  if (comparison.reference()) {
    set_reference(model, std::nullopt);
  } else {
    compare_from(model, cursor.event());
  }
}

void Selection::compare_from(const Model& model, uint32_t event) {
  set_reference(model, Reference{false, cursor.lane(), event, false});
}

void Selection::compare_with(const Model& model, const Reference& reference) {
  set_reference(model, reference);
}

void Selection::set_other(const Model& model, std::shared_ptr<const Model> second) {
  const bool all = is_view_untouched();
  comparison.set_other(std::move(second));
  update_length(model);
  ++version_;
  const Model* other = comparison.other().get();
  if (other == nullptr || other->lanes.empty() || cursor.lane() >= model.lanes.size()) return;
  // Each at its own peak is what people ask first.
  set_reference(model, comparison.peak_of_other(model, cursor));
  if (all) view.fit();
}

void Selection::place_other_by_clock(const Model& model, bool by_clock) {
  comparison.by_clock_ = by_clock;
  update_length(model);
  if (comparison.reference()) set_reference(model, comparison.reference());
}

void Selection::choose_allocation(uint32_t chosen) {
  highlights.drop_picked();
  highlights.allocation = chosen;
  requests.details = true;
}

void Selection::choose_hole(uint64_t address) {
  highlights.drop_picked();
  highlights.hole = address;
  requests.details = true;
}

void Selection::choose_activity(const Model& model, const ActivityRef& ref) {
  highlights.drop_picked();
  highlights.activity = ref;
  requests.details = true;
  const ActivityRow& row = model.activity[ref.process].rows[ref.row];
  const uint32_t lane = model.lane_of(ref.process, row.device);
  if (lane == UINT32_MAX) return;
  set_time(model, lane, since_start(model, row.spans.begin_ns(ref.index)));
}

void Selection::choose_range(const Model& model, uint32_t lane, const MarkRange& range) {
  highlights.drop_picked();
  set_time(model, lane, since_start(model, range.begin_ns));
  highlights.measure = TimeRange{range.begin_ns, range.end_ns};
  highlights.measured = model.process_of(model.lanes[lane]).names.string(range.name);
  requests.details = true;
}

void Selection::clear_highlights(const Model& model) {
  highlights.clear();
  set_reference(model, std::nullopt);
}

}  // namespace tidemark::view
