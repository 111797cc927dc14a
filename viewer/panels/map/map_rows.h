// The rows of the memory map: a segment each, with its address and size, its blocks and its holes.
// What is asleep (analysis/insight/card/residence.h) is faded, and hatched the other way.
#pragma once

#include <imgui.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "viewer/model/trace/selection.h"

namespace tidemark::view {

// What the rows of one instant share.
struct MapFacts {
  uint64_t largest_hole = 0;
  uint64_t largest_hole_at = 0;  // the first one of that size
  size_t largest_holes = 0;
  uint64_t private_free = 0;         // bytes of the holes in private pools
  std::string widest_pool;           // of the names of private pools; empty: no segment is of one
  std::vector<AddressRange> asleep;  // by address

  static MapFacts of(const Model& model, const Cursor& cursor, const Moment& moment);
};

// Holes of a private pool are hatched both ways: only what uses the pool can be placed there.
void hatch_free(ImVec2 a, ImVec2 b, bool of_private_pool, Rgb colour, int alpha);
void hatch_asleep(ImVec2 a, ImVec2 b);

class MapRows {
 public:
  // Of a new instant.
  void adopt(MapFacts facts);
  const MapFacts& facts() const { return facts_; }

  // The width left of the cells, in a row of this width.
  float label_width(float room) const;
  // `share`: of the width that the cells could have.
  void draw(const Model& model, Selection& selection, const Moment& moment, uint32_t segment,
            float height, double share);

 private:
  struct KeptCells {
    float width = -1;
    std::vector<MapCell> cells;
  };
  // A segment and where its cells are drawn.
  struct Row {
    const SegmentRange* range = nullptr;
    uint32_t pool = 0;  // the private one that it is of; 0: none
    uint64_t used = 0;
    uint64_t asleep = 0;
    float left = 0;
    float width = 0;
    float top = 0;
    float bottom = 0;
  };

  const std::vector<MapCell>& cells_of(const Moment& moment, uint32_t segment, float width);
  // Left of the cells.
  void draw_label(const Model& model, const Cursor& cursor, const Moment& moment, const Row& row,
                  ImVec2 at, float height) const;
  void draw_cell(const Model& model, Selection& selection, const Moment& moment, const Row& row,
                 const MapCell& cell) const;
  // Fades and hatches the parts of a cell that sleep; false: none does.
  bool draw_asleep(const MapCell& cell, ImVec2 a, ImVec2 b) const;
  void draw_hole(const Highlights& highlights, const Row& row, const MapCell& cell, ImVec2 a,
                 ImVec2 b) const;
  // Inside of the largest hole, or beside it, always within the row.
  void label_largest_hole(const Row& row) const;
  void explain_cell(const Model& model, const Cursor& cursor, const Moment& moment,
                    const MapCell& cell, const Row& row) const;
  void explain_segment(const Moment& moment, uint32_t segment, const Row& row) const;

  MapFacts facts_;
  std::unordered_map<uint32_t, KeptCells> cells_;  // by segment
};

}  // namespace tidemark::view
