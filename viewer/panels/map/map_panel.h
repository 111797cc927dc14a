// The memory map at the cursor: one row per segment, with coloured blocks and hatched holes, and
// what its colours mean.
#pragma once

#include <optional>
#include <vector>

#include "viewer/model/tables/colour_rows.h"
#include "viewer/model/trace/selection.h"
#include "viewer/panels/map/failed_request.h"
#include "viewer/panels/map/map_rows.h"
#include "viewer/widgets/scroll_to.h"

namespace tidemark::view {

// Chooses the hole: its details and the map come to the front.
void show_hole(Selection& selection, uint64_t address);
// A button for the largest one, beside a text about it. None: no hole.
void draw_largest_hole_button(Selection& selection, const MemoryState& state);

class MapPanel {
 public:
  static constexpr const char* kTitle = "Memory map";

  void draw(const Model& model, Selection& selection);

 private:
  void draw_toolbar(const Model& model, Selection& selection, const Moment& moment);
  // The request that failed, above the rows. `scrolls`: beside them is a scroll bar.
  void draw_request(const Model& model, Selection& selection, const Moment& moment, bool scrolls);
  // Of the width of a row: all of it, or if rows are drawn to scale, for so many bytes.
  double width_share(const Moment& moment, uint64_t bytes) const;
  // Brings the chosen block or hole into view.
  void follow_chosen(const Model& model, const Selection& selection, const Moment& moment,
                     float row_height);
  void update(const Model& model, Selection& selection, const Moment& moment);
  // What the colours of the live blocks mean, most bytes first.
  void make_legend(const Model& model, ColourBy by, const Moment& moment);
  void draw_legend(ColourBy by);
  void draw_free_legend(const MemoryState& state);
  void draw_asleep_legend();

  RowOrder order_ = RowOrder::kAddress;
  bool to_scale_ = false;  // the length of a row is the size of its segment
  // What is drawn was made from these.
  const Model* model_ = nullptr;
  uint64_t version_ = 0;
  RowOrder made_order_ = RowOrder::kAddress;
  std::vector<uint32_t> segments_;  // from top to bottom
  MapRows rows_;
  ScrollTo scroll_;
  std::optional<FailedRequest> request_;
  std::vector<ColourRow> legend_;
  ColourBy legend_of_ = ColourBy::kCategory;
  bool legend_final_ = false;  // the report says what is only probable
};

}  // namespace tidemark::view
