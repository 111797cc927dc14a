// The stacked timeline: every block a band over time, or every category, line, stream, segment. One
// lane; or two above each other, of two ranks, traces or steps.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "viewer/panels/details/stretch_view.h"
#include "viewer/panels/stack/stack_toolbar.h"
#include "viewer/panels/timeline/stack_legend.h"
#include "viewer/panels/timeline/stack_view.h"

namespace tidemark::view {

class StackPanel {
 public:
  static constexpr const char* kTitle = "Stack";

  StackPanel();

  void draw(const Model& model, Selection& selection);
  void set_wake(const std::function<void()>& wake);
  void forget_trace();

  // Drawn in the last frame.
  bool visible() const;
  // The time under the mouse, for zooming by key; none: the mouse is elsewhere.
  std::optional<double> hover_time() const { return hover_time_; }

  const std::shared_ptr<StackIndexes>& indexes() const { return indexes_; }

  StackPanelOptions options;
  // A frame computes everything; for pictures.
  bool patient = false;
  SearchField search;
  // As drawn last, for tests.
  const StackView& view(size_t plot = 0) const { return views_[plot]; }
  const PlotArea& area(size_t plot = 0) const { return areas_[plot]; }
  StackLegend legend;

 private:
  void show_whole_height();
  // One of the plots: whose memory, where on the axis, and its name.
  struct Plot {
    const Model* model = nullptr;
    uint32_t lane = 0;
    double offset = 0;  // its times become those of the axis by adding this
    std::string title;
    bool own = true;                           // of the trace that is shown, not of the second one
    std::optional<double> end = std::nullopt;  // on the axis; what follows is dimmed
    // What precedes is dimmed.
    std::optional<double> begin = std::nullopt;
  };
  enum class Drag { kNone, kPan, kMeasure };

  std::vector<Plot> plots_of(const Model& model, const Selection& selection);
  StackWish wish_of(const Plot& plot, const Selection& selection, ImVec2 size) const;
  void draw_notes(const Model& model, const Lane& lane);
  void draw_plot(const Model& model, Selection& selection, const Plot& plot, size_t index,
                 ImVec2 size);
  void draw_marks(const Plot& plot, const PlotArea& area, StackView& view);
  void draw_legend(const Model& model, Selection& selection, const std::vector<Plot>& plots);
  // Finds the titles and peaks of the two steps.
  void name_steps(const Model& model, const Lane& lane);
  // The peaks of the two steps, where the cursor is in neither.
  std::optional<LegendPair> peaks_to_list(const Model& model, const Cursor& cursor,
                                          const std::vector<Plot>& plots) const;
  void draw_byte_axis(const PlotArea& area, const StackView& view);
  void handle_mouse(const Model& model, Selection& selection, const Plot& plot, size_t index);
  void choose(const Model& model, Selection& selection, const Plot& plot, size_t index, bool ctrl);
  void zoom_height(const PlotArea& area, double factor);
  // The view of the axis: the program's, or that of a step.
  TimeView& time_view(Selection& selection) { return steps_ ? step_view_ : selection.view; }
  const EventAxis* axis() const { return axis_ ? &*axis_ : nullptr; }

  // Of this frame; the options are what was asked for, which a trace may not have.
  StackBy by_ = StackBy::kBlock;
  bool steps_ = false;
  std::shared_ptr<StackIndexes> indexes_;
  std::array<StackView, 2> views_;
  std::array<PlotArea, 2> areas_;
  std::optional<EventAxis> axis_;  // of this frame
  TimeView step_view_;
  std::optional<StepPair> pair_;    // chosen by the person, or suggested
  std::optional<StepPair> titled_;  // of titles_ and peaks_
  StepTitles titles_;
  std::optional<LegendPair> peaks_;
  const Lane* pair_of_ = nullptr;
  double top_bytes_ = 1;  // shared by the plots
  double zoom_ = 1;       // of the height
  double bottom_share_ = 0;
  Drag drag_ = Drag::kNone;
  double drag_from_ = 0;
  ImVec2 clicked_at_{-1e6F, -1e6F};
  double drag_bottom_ = 0;
  VisibleRange drag_view_;
  std::optional<double> hover_time_;
  int frame_ = -10;
  StretchView stretch_;
};

}  // namespace tidemark::view
