// What the person is looking at: the stretch of time, the instant, the block; and the ways to move.
// Every panel reads it and may change it; it holds no ImGui types and belongs to the drawing
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "viewer/model/map/map_layout.h"
#include "viewer/model/palette.h"
#include "viewer/model/trace/visible_range.h"

namespace tidemark::view {

// The memory at the cursor, shared by all panels and computed once per instant.
struct Moment {
  uint32_t lane = 0;
  uint32_t event = 0;
  MemoryState state;
  MapLayout layout;
};

// The instant that the cursor's is compared with: of any lane, of this trace or of the other one.
struct Reference {
  bool other = false;  // of Selection::other
  uint32_t lane = 0;
  uint32_t event = 0;
  bool follows = false;  // the same time as the cursor's, wherever that goes
};

// A reference with everything that is needed to look into it.
struct Compared {
  const Model& model;
  const Lane& lane;
  const Moment& moment;
};

// The curve that is laid over a lane's own: of another rank, or of the second trace.
struct Overlay {
  const Model* model = nullptr;
  uint32_t lane = 0;
  double offset = 0;  // its times become this trace's by adding this

  const Lane& of() const { return model->lanes[lane]; }
};

class Selection {
 public:
  // Shows all of the trace, with the cursor at the first out-of-memory error, else at the peak.
  void reset(const Model& model);
  // The same trace was read again and has grown: everything stays where it is. A view of the whole
  // run stays one, and a view at the end of it moves on with the end.
  void carry_over(const Model& before, const Model& after);

  // Blocks have their categories now: what was made of them is made again.
  void blocks_changed(const Model& model);

  // --- the stretch of time
  VisibleRange view;
  // All of the trace and of the second one beside it, where they lie together.
  VisibleRange whole(const Model& model) const;
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
  bool event_in_lane(const Model& model, uint32_t index, uint32_t& out) const;
  const Moment& moment(const Model& model);
  // The same, to keep while the cursor moves on.
  std::shared_ptr<const Moment> share_moment(const Model& model);

  // --- the instant it is compared with
  std::optional<Reference> compare;
  // Remembers the cursor's instant, or ends the comparison.
  void toggle_compare();
  // With an earlier event of the same lane.
  void compare_from(uint32_t event);
  void compare_with(const Model& model, const Reference& reference);
  // Empty when nothing is compared, or an instant with itself.
  std::optional<Compared> compared(const Model& model);
  // Of the reference, in ns since the start of this trace.
  double compared_time(const Model& model) const;
  // "since +1.2 s", "against rank 1, cuda:0 at +1.2 s", "against b.tmk, cuda:0 at +1.2 s".
  std::string compared_text(const Model& model) const;

  // --- a second trace beside this one
  std::shared_ptr<const Model> other;
  bool other_by_clock = false;  // as the clocks say; else both begin together
  // Its times become this trace's by adding this.
  double other_offset(const Model& model) const;
  void set_other(const Model& model, std::shared_ptr<const Model> second);
  // What is laid over a lane: what it is compared with, or the same device of the second trace.
  std::optional<Overlay> overlay_of(const Model& model, uint32_t lane) const;

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
  static std::shared_ptr<Moment> make_moment(const Model& model, uint32_t lane, uint32_t event);
  // The trace that the reference is of.
  const Model& referred(const Model& model) const;
  void follow_cursor(const Model& model);
  // Where the last of the traces that are shown ends.
  double end_of(const Model& model) const;
  static ColourBy usual_colour(const Model& model);

  void forget_details();

  // The instant itself where it lies behind the event: a kernel, an error, a click between two.
  std::optional<double> between_events_;
  ColourBy first_colour_ = ColourBy::kStack;  // before anybody chose another
  std::shared_ptr<Moment> moment_;
  std::shared_ptr<Moment> compared_;
  const Model* compared_model_ = nullptr;
  uint64_t version_ = 1;
};

}  // namespace tidemark::view
