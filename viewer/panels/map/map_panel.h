// The memory map at the cursor: one row per segment, with coloured blocks and hatched holes. What
// is asleep (analysis/insight/card/residence.h) is faded, and hatched the other way.
#pragma once

#include <imgui.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "viewer/model/tables/colour_rows.h"
#include "viewer/model/trace/selection.h"
#include "viewer/panels/map/failed_request.h"

namespace tidemark::view {

class MapPanel {
 public:
  static constexpr const char* kTitle = "Memory map";

  void draw(const Model& model, Selection& selection);

 private:
  void draw_toolbar(const Model& model, Selection& selection, const Moment& moment);
  void draw_row(const Model& model, Selection& selection, const Moment& moment, uint32_t segment,
                float height);
  void draw_cell(const Model& model, Selection& selection, const Moment& moment,
                 const MapCell& cell, float left, float top, float bottom);
  // Fades and hatches the parts of a cell that sleep; false: none does.
  bool draw_asleep(const MapCell& cell, ImVec2 a, ImVec2 b);
  void draw_hole(const Highlights& highlights, const MapCell& cell, ImVec2 a, ImVec2 b);
  // Beside the largest hole where there is no space in it. `left`: of the row, which is `width`
  // wide.
  void label_largest_hole(const SegmentRange& segment, uint32_t pool, float left, float width,
                          float top, float bottom);
  // The longest that fits, if one does. `pool`: the private one that it lies in; 0: none.
  std::string largest_hole_text(uint32_t pool, float room) const;
  // The request that failed, above the rows. `scrolls`: beside them is a scroll bar.
  void draw_request(const Model& model, const Moment& moment, bool scrolls);
  // The bytes that fill a row when rows are drawn to scale.
  uint64_t scale_bytes(const Moment& moment) const;
  void name_pools(const Lane& lane, const MemoryState& state);
  void update(const Model& model, Selection& selection, const Moment& moment);
  // What the colours of the live blocks mean, most bytes first.
  void make_legend(const Model& model, ColourBy by, const Moment& moment);
  const std::vector<MapCell>& cells_of(const Moment& moment, uint32_t segment, float width);
  void draw_legend(ColourBy by);
  void draw_asleep_legend();
  void explain_cell(const Model& model, const Cursor& cursor, const Moment& moment,
                    const MapCell& cell, const SegmentRange& segment);

  struct KeptCells {
    float width = -1;
    std::vector<MapCell> cells;
  };

  RowOrder order_ = RowOrder::kAddress;
  std::unordered_map<uint32_t, KeptCells> cells_;  // by segment
  bool to_scale_ = false;                          // the length of a row is the size of its segment
  std::vector<uint32_t> rows_;
  uint64_t rows_version_ = 0;
  const Model* rows_model_ = nullptr;
  RowOrder rows_order_ = RowOrder::kAddress;
  uint64_t largest_hole_ = 0;
  uint64_t largest_hole_at_ = 0;  // the first one of that size
  size_t largest_holes_ = 0;
  std::string widest_pool_;  // of the names of private pools; empty: no segment is of one
  std::optional<FailedRequest> request_;
  std::vector<ColourRow> legend_;
  std::vector<AddressRange> asleep_;  // by address
  ColourBy legend_of_ = ColourBy::kCategory;
  bool legend_final_ = false;  // the report says what is only probable
};

}  // namespace tidemark::view
