// All ranks of a job at once: a heat map over time, or a small curve for each; which rank stands
// out, and which ranks wait for which.
#pragma once

#include "viewer/panels/ranks/rank_curves_view.h"
#include "viewer/panels/ranks/rank_heat_view.h"

namespace tidemark::view {

class RanksPanel {
 public:
  static constexpr const char* kTitle = "Ranks";

  void draw(const Model& model, Selection& selection);

  // There is more to compute: draw again soon.
  bool unfinished() const { return unfinished_; }
  // A frame computes everything; for pictures, not for a window.
  bool patient = false;

  bool curves = false;  // small curves instead of the heat map
  RankOptions options;

 private:
  void draw_toolbar();
  void draw_summary(const Model& model, Selection& selection);
  // Since which step the rank that stands out needs more, where the clocks are not known.
  void draw_since_step(const Model& model, float room);
  void draw_compare_button(const Model& model, Selection& selection);
  void draw_stuck(const Model& model, Selection& selection);
  // Moves the cursor to a rank and time, if the rank is shown.
  void go(const Model& model, Selection& selection, int64_t rank, int64_t time_ns);

  const Model* model_ = nullptr;
  RankRows rows_;
  RankHeatView heat_;
  RankCurvesView curves_;
  bool unfinished_ = false;
};

}  // namespace tidemark::view
