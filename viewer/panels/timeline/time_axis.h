// The time axis of a panel, and the gestures that move through time over its plot.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "viewer/panels/timeline/lanes.h"

namespace tidemark::view {

// The same in all panels, so that their axes are aligned.
inline constexpr float kGutterPx = 76;  // for the sizes left of a plot
inline constexpr float kAxisPx = 24;
inline constexpr float kClickPx = 4;  // a shorter drag is a click

// As many round times as fit.
std::vector<Tick> axis_ticks(const VisibleRange& view, float width);
// The same for round numbers of events.
std::vector<Tick> event_ticks(const EventAxis& axis, const VisibleRange& view, float width);
// The ways to move through the view of a plot: factor < 1 zooms in, a share moves.
void zoom_view(TimeView& view, const EventAxis* axis, double at, double factor);
void pan_view(TimeView& view, const EventAxis* axis, const VisibleRange& from, double share);
// Labels above a plot, with the cursor's time on a flag. `area` is the strip for the labels.
void draw_time_axis(const Model& model, const Cursor& cursor, const std::vector<Tick>& ticks,
                    const PlotArea& area);
// The labels alone, none of them within [kept_free].
struct FreePart {
  float begin = 0;
  float end = 0;
};
void draw_tick_labels(const std::vector<Tick>& ticks, const PlotArea& area,
                      const std::optional<FreePart>& kept_free);
// Lines through a plot at the ticks, and the cursors.
void draw_time_grid(const std::vector<Tick>& ticks, const PlotArea& area);
void draw_cursor_lines(const Model& model, const Selection& selection, const PlotArea& area);
// A measured time, with a label so far above the lower edge.
void draw_measured(const VisibleRange& range, const PlotArea& area, const std::string& label,
                   float above);

// For the previous item: the wheel zooms, a drag moves. One object per plot.
class TimeGestures {
 public:
  // Where the item was clicked, once.
  std::optional<ImVec2> handle(TimeView& view, const PlotArea& area);

 private:
  VisibleRange drag_view_;
};

// In a toolbar: that the view does not begin with the run, and how to see all of it.
void note_left_out(const TimeView& view);

}  // namespace tidemark::view
