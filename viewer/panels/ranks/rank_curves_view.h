// The small curves of the ranks panel: one per rank, all at one scale. Only those in sight are
// computed and drawn.
#pragma once

#include <unordered_map>

#include "viewer/panels/ranks/rank_heat_view.h"

namespace tidemark::view {

class RankCurvesView {
 public:
  // Goes on for about that long (< 0: to the end) with what is not yet exact; true when all is.
  bool draw(const Model& model, Selection& selection, const RankRows& rows,
            const RankOptions& options, ImVec2 size, int64_t budget_ns);

 private:
  // Kept for the next frame.
  struct Small {
    VisibleRange view;
    uint32_t columns = 0;
    RankValue value = RankValue::kAllocated;
    RankColumnWork values;
  };

  const RankColumns& values_of(const Model& model, uint32_t lane, const VisibleRange& view,
                               uint32_t columns);
  void draw_one(const Model& model, Selection& selection, const RankRows& rows, size_t row,
                ImVec2 size);
  void draw_values(const Model& model, uint32_t lane, const PlotArea& area, Rgb colour);

  const Model* model_ = nullptr;
  RankOptions options_;
  double top_bytes_ = 1;
  TimeGestures gestures_;
  std::unordered_map<uint32_t, Small> small_;
  uint32_t last_lane_ = UINT32_MAX;
  int64_t budget_ns_ = 0;  // what is left of it in this frame
  bool exact_ = true;      // all that was drawn in this frame
};

}  // namespace tidemark::view
