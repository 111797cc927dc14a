// What the person is looking at, shared by all panels. Each part can be read, and passed on, by
// itself; what changes several parts at once is a function of Selection. It holds no ImGui types
// and belongs to the drawing thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "viewer/model/palette.h"
#include "viewer/model/trace/comparison.h"
#include "viewer/model/trace/cursor.h"
#include "viewer/model/trace/highlights.h"
#include "viewer/model/trace/time_view.h"

namespace tidemark::view {

// What the colours of blocks mean.
struct Colouring {
  ColourBy by = ColourBy::kStack;
  ColourBy suggested = ColourBy::kStack;

  // Takes the suggestion unless the person chose another colouring.
  void suggest(ColourBy usual) {
    if (by == suggested) by = usual;
    suggested = usual;
  }
};

// A device of a rank that is not loaded, of a job of very many ranks.
struct RankRequest {
  size_t rank = 0;  // in JobOverview::job
  int64_t device = 0;
  double time = 0;  // ns since the start of the trace
};

// What a panel asks the program to do in the next frame.
struct PanelRequests {
  bool details = false;             // something was clicked: bring its details to the front
  const char* panel = nullptr;      // the title of a panel to bring to the front
  const char* beside = nullptr;     // another one, unless it would cover the first
  std::optional<RankRequest> rank;  // to load, and to go to
};

class Selection {
 public:
  TimeView view;
  Cursor cursor;
  Comparison comparison;
  Highlights highlights;
  Colouring colouring;
  PanelRequests requests;

  // `wake` asks for a new frame, from any thread.
  void set_wake(const std::function<void()>& wake);
  // For pictures: what is shown is computed before it is drawn, however long that takes.
  void be_patient();
  // Once per frame. True: the memory at the cursor or at the reference has been made.
  bool poll();

  // The whole trace; without its beginning, and without its end after an error, where they take
  // more than a third of the width and have hardly any event, and neither the cursor nor an error.
  void show_at_first(const Model& model);
  // Whether the view is still that of show_at_first(), or of the whole trace.
  bool is_view_untouched() const { return view.shows_all() || view.leaves_out_rest(); }
  // Shows the trace as show_at_first() does, with the cursor at Model::oom_to_show(), else at the
  // peak.
  void reset(const Model& model);
  // The same trace was read again and has grown: everything stays where it is. A view of the whole
  // run stays one, and a view of its end moves on with the end.
  void carry_over(const Model& before, const Model& after);
  // Blocks have their categories now: what was made of the blocks is made again.
  void blocks_changed(const Model& model);

  // --- the cursor
  void set_event(const Model& model, uint32_t lane, uint32_t event);
  void set_time(const Model& model, uint32_t lane, double time);
  void step_events(const Model& model, int64_t steps);
  void go_to_peak(const Model& model);
  // False when there is no error. After the last one comes the first, and the other way round.
  bool go_to_oom(const Model& model, int direction);
  void go_to_oom_at(const Model& model, size_t index);
  // Into view.
  void reveal_cursor(const Model& model) { view.reveal(cursor.time(model)); }

  // --- the comparison
  // Remembers the cursor's instant, or ends the comparison.
  void toggle_compare(const Model& model);
  // With an earlier event of the same lane.
  void compare_from(const Model& model, uint32_t event);
  void compare_with(const Model& model, const Reference& reference);
  std::optional<Compared> compared(const Model& model) {
    return comparison.compared(model, cursor);
  }
  std::optional<Overlay> overlay_of(const Model& model, uint32_t lane) const {
    return comparison.overlay_of(model, cursor, lane);
  }
  // Opens a second trace, or closes it (null).
  void set_other(const Model& model, std::shared_ptr<const Model> second);
  void place_other_by_clock(const Model& model, bool by_clock);

  // --- what is picked out
  void choose_allocation(uint32_t allocation);
  void choose_hole(uint64_t address);
  // Moves the cursor to where it began, too.
  void choose_activity(const Model& model, const ActivityRef& ref);
  // Measures its time, in this lane.
  void choose_range(const Model& model, uint32_t lane, const MarkRange& range);
  // And the comparison.
  void clear_highlights(const Model& model);

  // Grows with every change of the memory that is shown or compared; caches compare it.
  uint64_t version() const { return version_; }

 private:
  // The cursor moved, from this lane.
  void cursor_moved(const Model& model, uint32_t from_lane);
  void set_reference(const Model& model, const std::optional<Reference>& reference);
  void update_length(const Model& model);

  uint64_t version_ = 1;
};

}  // namespace tidemark::view
