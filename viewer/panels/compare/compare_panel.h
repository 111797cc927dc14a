// Two devices side by side: two ranks, two times, or two traces. Their curves in one plot, and what
// is live in one but not in the other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "viewer/model/compare/change_rows.h"
#include "viewer/panels/timeline/time_axis.h"

namespace tidemark::view {

class ComparePanel {
 public:
  static constexpr const char* kTitle = "Compare";

  void draw(const Model& model, Selection& selection);

  bool open_wanted = false;  // asks to open another trace to compare with

  // There is more to compute: draw again soon.
  bool unfinished() const { return !mine_.work.is_exact() || !theirs_.work.is_exact(); }
  // A frame computes everything; for pictures, not for a window.
  bool patient = false;

  // The maximum of each curve as drawn last, for tests: mine, theirs.
  double drawn_top[2] = {0, 0};

 private:
  // One curve as it is drawn; computed again only when something changed.
  struct Points {
    std::weak_ptr<const Model> model;  // a later model may get the same address
    const Lane* lane = nullptr;
    TimeWindow window;
    double offset = 0;
    uint32_t columns = 0;
    Curve value = Curve::kAllocated;
    ColumnWork work;
    std::vector<double> xs;
    std::vector<double> ys;
  };

  void draw_choice(const Model& model, Selection& selection);
  void draw_lane_choice(const Model& model, Selection& selection);
  void draw_instant_choice(const Model& model, Selection& selection);
  void draw_plot(const Model& model, Selection& selection, ImVec2 size);
  // Computes the points of the two curves.
  void fill_both(const Model& model, const Selection& selection, const PlotArea& area);
  void plot_both(const PlotArea& area);
  void draw_legend(const Model& model, const Selection& selection, const PlotArea& area);
  void draw_rows(const Model& model, Selection& selection);
  // Suggestions, while nothing is compared.
  void draw_offers(const Model& model, Selection& selection);
  // The chosen curve of a lane, its times moved by `offset`.
  void fill(const Model& model, const Lane& lane, const VisibleRange& view, double offset,
            uint32_t columns, Points& out) const;

  Curve value_ = Curve::kAllocated;
  Points mine_;
  Points theirs_;
  TimeGestures gestures_;
  const Model* model_ = nullptr;
  uint64_t version_ = 0;
  bool reported_ = false;  // whether the report was attached, which has the peaks
  std::vector<ChangeRow> rows_;
};

}  // namespace tidemark::view
