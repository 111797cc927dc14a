// The curves of one device in the timeline: what is kept between frames, and how it is drawn.
#pragma once

#include <imgui.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "viewer/model/ticks.h"
#include "viewer/model/timeline/columns.h"
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
};

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

  float x(double time) const {
    return min.x + static_cast<float>((time - view.begin) / view.span()) * (max.x - min.x);
  }
  float y(double bytes) const {
    return max.y - static_cast<float>(bytes / top_bytes) * (max.y - min.y);
  }
  double time(float x_px) const {
    return view.begin + static_cast<double>((x_px - min.x) / (max.x - min.x)) * view.span();
  }
};

// The curves of a lane for one view and width; computed again only when either changes.
class LaneCurves {
 public:
  // The lane's times become those of the view by adding `offset`.
  void update(const Model& model, const Lane& lane, const VisibleRange& view, uint32_t columns,
              double offset = 0);
  // Continues what update() of this frame left for later, once the view stopped moving; see
  // ColumnWork. True: nothing is left.
  bool refine(int64_t budget_ns);
  bool is_exact() const { return columns_.is_exact(); }

  const TimelineColumns& columns() const { return columns_.columns(); }
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

  std::weak_ptr<const Model> of_;  // a later model may get the same address
  const Lane* lane_ = nullptr;
  bool touched_ = false;  // by update(), since the last refine()
  bool moved_ = false;    // by the last update()
  VisibleRange view_;
  uint32_t count_ = 0;
  double offset_ = 0;
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
  std::optional<Overlay> overlay;  // as drawn last
};

// Draws the curves with their labels at ImGui's cursor, in a plot of this size, with a strip for
// the steps at its bottom. Returns where the plot is.
PlotArea draw_lane(const Model& model, const Selection& selection, uint32_t lane,
                   LaneDrawing& drawing, const TimelineOptions& options,
                   const std::vector<Tick>& time_ticks, ImVec2 size);

// "rank 1, cuda:0", "b.tmk: rank 1, cuda:0".
std::string overlay_name(const Model& model, const Overlay& overlay);

// Round sizes for the height of a plot.
std::vector<Tick> area_ticks(const PlotArea& area);
// The sizes left of a plot, right-aligned at `area.min.x`.
void draw_byte_labels(const PlotArea& area);

}  // namespace tidemark::view
