// An overview of the whole trace in a strip, with the visible range marked; a drag moves that
// range.
#pragma once

#include "viewer/panels/timeline/lanes.h"

namespace tidemark::view {

// Of a trace that has the last stretch of a longer run: the curve of all of it, for the selected
// lane. Nothing for other traces. Leaves the cursor where it was.
void draw_whole_run(const Model& model, const Selection& selection, ImVec2 size);

class Minimap {
 public:
  // With `overlay`, also the overlay of the selected lane.
  void draw(const Model& model, Selection& selection, bool overlay, const EventAxis* axis,
            ImVec2 size);
  // Calls act() for its curves, to refine them.
  template <typename Act>
  void each(const Act& act) {
    act(own_);
    act(laid_over_);
  }

 private:
  void draw_curves(const Model& model, const Selection& selection, bool overlay, PlotArea& area);
  void drag(TimeView& view, const PlotArea& area);

  LaneCurves own_;
  LaneCurves laid_over_;
  bool dragging_ = false;
  double drag_from_ = 0;    // position under the mouse when the drag began
  VisibleRange drag_view_;  // the view when the drag began
};

}  // namespace tidemark::view
