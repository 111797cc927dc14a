// What the person is looking at: the stretch of time, the instant, the block; and the ways to move.
// Every panel reads it and may change it; it holds no ImGui types and belongs to the drawing
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "viewer/model/map_layout.h"
#include "viewer/model/palette.h"
#include "viewer/model/view_model.h"

namespace tidemark::view {

// In ns since the start of the trace.
struct TimeRange {
  double begin = 0;
  double end = 1;

  double span() const { return end - begin; }
};

// As the model counts it, from ns since the start of the trace.
int64_t absolute_ns(const Model& model, double time);

// The memory at the cursor, shared by all panels and computed once per instant.
struct Moment {
  uint32_t lane = 0;
  uint32_t event = 0;
  MemoryState state;
  MapLayout layout;
};

class Selection {
 public:
  // Shows all of the trace, with the cursor at the first out-of-memory error, else at the peak.
  void reset(const Model& model);

  // --- the stretch of time
  TimeRange view;
  void fit(const Model& model);
  // factor < 1 zooms in; `at` stays where it is.
  void zoom(const Model& model, double at, double factor);
  // By a share of what is shown.
  void pan(const Model& model, double share);
  void show(const Model& model, double begin, double end);
  // Moves the view, if need be, until the time is in it.
  void reveal(const Model& model, double time);

  // --- the instant
  uint32_t lane = 0;
  uint32_t event = 0;  // of the lane's events: the last one at or before the instant
  void set_event(const Model& model, uint32_t lane, uint32_t event);
  void set_time(const Model& model, uint32_t lane, double time);
  void step_events(const Model& model, int64_t steps);
  void go_to_peak(const Model& model);
  // False when there is none in that direction; goes around at the ends otherwise.
  bool go_to_oom(const Model& model, int direction);
  void go_to_oom_at(const Model& model, size_t index);
  // ns since the start of the trace.
  double time(const Model& model) const;
  int64_t time_ns(const Model& model) const { return absolute_ns(model, time(model)); }
  // The lane's last event at or before the cursor's time; false when it has none yet.
  bool event_in_lane(const Model& model, uint32_t other, uint32_t& out) const;
  const Moment& moment(const Model& model);
  // The same, to keep while the cursor moves on.
  std::shared_ptr<const Moment> share_moment(const Model& model);

  // --- the instant it is compared with
  std::optional<uint32_t> compare;  // an event of the same lane
  void toggle_compare();
  void compare_from(uint32_t event);
  const Moment* compared(const Model& model);

  // --- what is marked
  // A block, a hole or something that ran: at most one of the three.
  std::optional<uint32_t> allocation;  // of the lane's allocations
  std::optional<uint64_t> hole;        // its address
  std::optional<ActivityRef> activity;
  void choose_allocation(uint32_t allocation);
  void choose_hole(uint64_t address);
  // Moves to where it began, too.
  void choose_activity(const Model& model, const ActivityRef& ref);
  std::optional<TimeRange> measure;
  std::string search;  // in stacks; any case
  ColourBy colour = ColourBy::kStack;
  void clear_marks();                  // measure, search, comparison and block
  bool detail_wanted = false;          // something was clicked: bring its details to the front
  const char* panel_wanted = nullptr;  // the title of a panel to bring to the front

  // Grows with every change of instant or comparison; caches compare it.
  uint64_t version() const { return version_; }

 private:
  std::shared_ptr<Moment> make_moment(const Model& model, uint32_t event) const;

  void forget_details();

  // The instant itself where it lies behind the event: a kernel, an error, a click between two.
  std::optional<double> between_events_;
  std::shared_ptr<Moment> moment_;
  std::shared_ptr<Moment> compared_;
  uint64_t version_ = 1;
};

}  // namespace tidemark::view
