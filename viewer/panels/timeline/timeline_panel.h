// Memory over time: every device of every rank on one axis, with an overview of the whole run
// above.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "viewer/model/trace/preview.h"
#include "viewer/panels/timeline/activity.h"
#include "viewer/panels/timeline/minimap.h"
#include "viewer/panels/timeline/search_field.h"
#include "viewer/panels/timeline/stack_legend.h"
#include "viewer/panels/timeline/stack_view.h"

namespace tidemark::view {

class TimelinePanel {
 public:
  static constexpr const char* kTitle = "Timeline";

  void draw(const Model& model, Selection& selection);
  // While the trace is being read.
  void draw_preview(const Preview& preview);

  // The keys that move through time. Not called while text is being entered. `hovered`: the time
  // under the mouse in another panel.
  void handle_keys(const Model& model, Selection& selection, std::optional<double> hovered = {});

  // There is more to compute: draw again soon.
  bool unfinished() const { return unfinished_; }
  // A frame computes everything; for pictures, not for a window.
  bool patient = false;

  // For the bands of the option `stacked`.
  void use_stack(std::shared_ptr<StackIndexes> indexes, const std::function<void()>& wake);

  TimelineOptions options;
  // A lane as it was drawn last, for tests.
  const LaneDrawing& drawn(uint32_t lane) const { return lanes_[lane]; }
  SearchField search;

 private:
  enum class Drag { kNone, kPan, kMeasure };

  void draw_toolbar(const Model& model, Selection& selection);
  void draw_switches(const Model& model, const Selection& selection);
  float lane_height(const Model& model, const Cursor& cursor, float room, bool& scrolls) const;
  void draw_lanes(const Model& model, Selection& selection, ImVec2 size, float height);
  // Kernels, collectives and annotations below the last lane of a process.
  void draw_below(const Model& model, Selection& selection, uint32_t lane, float width);
  // True when the previous item was clicked, not dragged.
  bool handle_mouse(const Model& model, Selection& selection, uint32_t lane, const PlotArea& area);
  void draw_hover(const Model& model, uint32_t lane, const PlotArea& area,
                  const LaneDrawing& drawing);
  void draw_measure(const Model& model, const Selection& selection, const PlotArea& area);
  void refine_curves();
  // The bands of a lane, behind its curves.
  void draw_stack(const Model& model, const Selection& selection, uint32_t lane, double top_bytes,
                  ImVec2 at, ImVec2 size);
  const EventAxis* axis() const { return axis_ ? &*axis_ : nullptr; }
  // Kernels are drawn over time only.
  TimelineOptions shown_options() const;

  std::optional<EventAxis> axis_;  // of this frame
  std::vector<LaneDrawing> lanes_;
  std::unique_ptr<StackView> stack_;
  std::unique_ptr<StackLegend> legend_;
  Minimap minimap_;
  bool unfinished_ = false;
  std::vector<Tick> ticks_;
  Drag drag_ = Drag::kNone;
  double drag_from_ = 0;    // time under the mouse when the drag began
  VisibleRange drag_view_;  // the view when the drag began
  uint32_t last_lane_ = UINT32_MAX;
  int scroll_frames_ = 0;   // frames left in which the lane is scrolled into view
  double hover_time_ = -1;  // for zooming by key; < view.begin when the mouse is elsewhere
};

}  // namespace tidemark::view
