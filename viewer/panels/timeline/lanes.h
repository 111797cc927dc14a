// The curves of one device in the timeline: what is kept between frames, and how it is drawn.
#pragma once

#include <imgui.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "viewer/model/ticks.h"
#include "viewer/model/timeline/columns.h"
#include "viewer/model/timeline/event_axis.h"
#include "viewer/model/trace/selection.h"

namespace tidemark::view {

struct TimelineOptions {
  std::array<bool, kCurves> shown = {true, true, true};
  bool used = true;          // what NVML reports for the card
  bool owners = true;        // a curve for each owner other than the framework
  bool steps = true;         // where iterations begin
  bool activity = true;      // kernels and collectives below the curves
  bool all_streams = false;  // not only the busiest
  bool overlay = true;       // the curve of the reference over a lane's own
  bool to_limit = false;     // scale to the card's memory, not to the highest curve
  bool own_scale = false;    // each lane to its own highest curve, not all to the same
  bool by_event = false;     // the selected lane's events on the x axis, not the time
  bool stacked = false;      // the selected lane's categories (or lines) as bands, not one area
};

inline constexpr float kTwoLinesPx = 104;  // a lower plot has no space for numbers at the cursor

const char* curve_name(Curve curve);
// The name in this lane, and the curves that the lane has.
const char* curve_name(Curve curve, const Lane& lane);
std::vector<Curve> curves_of(const Lane& lane);
Rgb curve_colour(Curve curve);

// The area of a plot on the screen and the time it shows.
struct PlotArea {
  ImVec2 min;
  ImVec2 max;
  VisibleRange view;
  double top_bytes = 1;
  const EventAxis* axis = nullptr;  // null: the x axis is the time

  double position(double time) const { return axis == nullptr ? time : axis->position(time); }
  float x_at(double position_there) const {
    const double first = position(view.begin);
    const double width = std::max(position(view.end) - first, 1e-9);
    return min.x + static_cast<float>((position_there - first) / width) * (max.x - min.x);
  }
  float x(double time) const { return x_at(position(time)); }
  float y(double bytes) const {
    return max.y - static_cast<float>(bytes / top_bytes) * (max.y - min.y);
  }
  double time(float x_px) const {
    const auto share = static_cast<double>((x_px - min.x) / (max.x - min.x));
    if (axis == nullptr) return view.begin + share * view.span();
    const double first = position(view.begin);
    return axis->time(first + share * (position(view.end) - first));
  }
};

// The curves of a lane for one view and width; computed again only when either changes.
class LaneCurves {
 public:
  // The lane's times become those of the view by adding `offset`.
  void update(const Model& model, const Lane& lane, const VisibleRange& view, uint32_t columns,
              double offset = 0, const EventAxis* axis = nullptr);
  // Continues what update() of this frame left for later, once the view stopped moving; see
  // ColumnWork. True: nothing is left.
  bool refine(int64_t budget_ns);
  bool is_exact() const { return columns_.is_exact(); }

  const TimelineColumns& columns() const { return columns_.columns(); }
  // Positions on the axis.
  const std::vector<double>& xs(Curve c) const { return xs_[static_cast<size_t>(c)]; }
  const std::vector<double>& ys(Curve c) const { return ys_[static_cast<size_t>(c)]; }

  struct Line {
    std::vector<double> xs;
    std::vector<double> ys;
  };
  const Line& used() const { return used_; }
  const std::vector<Line>& owners() const { return owners_; }

 private:
  void make_points();
  // From times of the window to the axis.
  void place(std::vector<double>& xs) const;

  std::weak_ptr<const Model> of_;  // a later model may get the same address
  const Lane* lane_ = nullptr;
  bool touched_ = false;  // by update(), since the last refine()
  bool moved_ = false;    // by the last update()
  VisibleRange view_;
  uint32_t count_ = 0;
  double offset_ = 0;
  std::optional<EventAxis> axis_;
  std::vector<double> edges_;  // of the columns on that axis
  TimeWindow window_;
  int64_t stop_ns_ = 0;
  ColumnWork columns_;
  std::array<std::vector<double>, kCurves> xs_;
  std::array<std::vector<double>, kCurves> ys_;
  Line used_;
  std::vector<Line> owners_;
};

// The curves of a lane, and the overlay.
struct LaneDrawing {
  LaneCurves own;
  LaneCurves laid_over;
  // As drawn last.
  std::optional<Overlay> overlay;
  double top_bytes = 0;

  // What Lane::card_used_at() says, looked up only when the time changes.
  uint64_t card_used_at(const Model& model, const Lane& lane, int64_t time_ns);

 private:
  struct CardUse {
    std::weak_ptr<const Model> model;
    const Lane* lane = nullptr;
    int64_t time_ns = 0;
    uint64_t bytes = 0;
  };
  CardUse card_use_;
};

// Draws the curves with their labels at ImGui's cursor, in a plot of this size, with a strip for
// the steps at its bottom. `top_bytes` is at the upper edge; 0: what the lane itself needs. Returns
// where the plot is.
PlotArea draw_lane(const Model& model, const Selection& selection, uint32_t lane,
                   LaneDrawing& drawing, const TimelineOptions& options,
                   const std::vector<Tick>& time_ticks, double top_bytes, const EventAxis* axis,
                   ImVec2 size);

// "rank 1, cuda:0", "b.tmk: rank 1, cuda:0".
std::string overlay_name(const Model& model, const Overlay& overlay);

// Round sizes for the height of a plot.
std::vector<Tick> area_ticks(const PlotArea& area);
// The sizes left of a plot, right-aligned at `area.min.x`.
void draw_byte_labels(const PlotArea& area);

}  // namespace tidemark::view
