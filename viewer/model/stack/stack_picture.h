// The stacked timeline as pixels, made in the background.
//
// Two columns of the stack share a column of pixels and are blended: a block as wide as a pixel
// fills at least one of them, wherever it lies.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "viewer/model/stack/stack_index.h"
#include "viewer/model/timeline/event_axis.h"
#include "viewer/model/trace/visible_range.h"

namespace tidemark::view {

// Everything that a picture depends on.
struct StackWish {
  const Model* model = nullptr;
  uint32_t lane = 0;
  StackBy by = StackBy::kBlock;
  bool categories_known = false;
  BandOrder order = BandOrder::kBirth;
  std::vector<bool> hidden;  // groups
  VisibleRange view;
  double offset = 0;  // the lane's times become those of the view by adding this
  const AllocationHistory* axis = nullptr;  // its events are on the x axis; null: the time
  int64_t axis_start_ns = 0;
  int width_px = 0;
  int height_px = 0;
  bool fit = false;  // to the highest column in view, else to `top_bytes`
  double top_bytes = 0;
  double zoom = 1;          // of the height
  double bottom_share = 0;  // of the height before it is zoomed
  ColourBy colour_by = ColourBy::kCategory;
  std::string search;  // lower case
  bool dark = true;

  friend bool operator==(const StackWish& a, const StackWish& b);
};

// Of what is summed and has no colour of its own.
inline constexpr Rgb kUncoloured{120, 124, 132};

struct StackPicture {
  StackWish wish;
  std::shared_ptr<const StackIndex> index;
  StackedColumns columns;  // kPerPixel per pixel
  double bottom_bytes = 0;
  double top_bytes = 1;
  std::vector<uint32_t> pixels;  // RGBA, from the upper left

  static constexpr uint32_t kPerPixel = 2;

  const Lane& lane() const { return *index->lane; }
  // The column under a share of the width; none: count().
  uint32_t column_at(double share) const;
  // The colours of blocks mean something other than the groups.
  bool has_own_colours() const {
    return index->by == StackBy::kBlock && wish.colour_by != ColourBy::kCategory;
  }
  // Whether there are blocks that are too small to have a colour of their own then.
  bool has_uncoloured() const;
  // The block in a band at an event, so many bytes above the lower edge of the band; none: the band
  // is not of blocks.
  std::optional<uint32_t> block_at(const StackBand& band, uint32_t event, uint64_t above) const;
  // The colour of a band, opaque.
  Rgb colour_of(const StackBand& band) const;
};

std::shared_ptr<const StackPicture> make_stack_picture(StackIndexes& indexes,
                                                       const StackWish& wish);

}  // namespace tidemark::view
