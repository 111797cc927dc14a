// The small curves of the ranks panel: one per rank, all at the same scale. Only those on the
// screen are computed and drawn.
#pragma once

#include <unordered_map>

#include "viewer/panels/ranks/rank_heat_view.h"

namespace tidemark::view {

class RankCurvesView {
 public:
  // Spends about this long (< 0: no limit) on what is not exact yet. True: everything is exact.
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
  int64_t budget_ns_ = 0;  // left in this frame
  bool exact_ = true;      // everything drawn in this frame
};

}  // namespace tidemark::view
