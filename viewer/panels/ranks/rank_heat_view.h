// The heat map of the ranks panel: a row per rank, a column per range of time.
//
// Where not all ranks fit, neighbours share a row, which shows the highest of them.
#pragma once

#include "viewer/model/ranks/rank_heat.h"
#include "viewer/panels/timeline/time_axis.h"

namespace tidemark::view {

struct RankOptions {
  RankValue value = RankValue::kAllocated;
  bool relative = false;  // colours show the distance to the median of the ranks
};

// A click selects the rank and the time; with ctrl, the rank to compare with. One that is not
// loaded is loaded first.
void choose_rank(const Model& model, Selection& selection, const RankRows& rows, size_t row,
                 double time);

class RankHeatView {
 public:
  // Computes for `budget_ns` at most (< 0: all); false when there is more to compute.
  bool draw(const Model& model, Selection& selection, const RankRows& rows,
            const RankOptions& options, ImVec2 size, int64_t budget_ns);

 private:
  // Where the rows are on the screen.
  struct Grid {
    PlotArea area;
    size_t ranks = 0;
    size_t drawn = 0;

    float height() const { return (area.max.y - area.min.y) / static_cast<float>(drawn); }
    size_t first(size_t row) const { return (row * ranks + drawn - 1) / drawn; }
    size_t last(size_t row) const { return first(row + 1); }
    size_t drawn_row(size_t rank) const { return rank * drawn / ranks; }
    float y(size_t rank) const {
      return area.min.y + static_cast<float>(drawn_row(rank)) * height();
    }
  };

  void draw_cells(const Grid& grid) const;
  void draw_names(const Model& model, const Selection& selection, const RankRows& rows,
                  const Grid& grid) const;
  void draw_waits(const Model& model, const RankRows& rows, const Grid& grid) const;
  // Since when the rank that stands out does.
  void draw_parting(const Model& model, const RankRows& rows, const Grid& grid) const;
  void draw_scale(ImVec2 min, ImVec2 max, float most_x) const;
  void draw_keys(ImVec2 at, float height, float most_x) const;
  void explain_cell(const Model& model, const RankRows& rows, const Grid& grid, size_t row) const;
  // The column of a time; false where nothing is computed.
  bool column_at(double time, uint32_t& column) const;
  // Of the ranks in a drawn row, the one with the maximum in this column.
  size_t highest(const Grid& grid, size_t row, uint32_t column) const;
  Rgb colour_of(uint64_t bytes, uint64_t middle) const;

  RankOptions options_;
  uint64_t top_bytes_ = 1;
  RankHeat heat_;
  TimeGestures gestures_;
};

}  // namespace tidemark::view
