// One stacked timeline on the screen. The picture is made in the background; until it is there, the
// last one is drawn where its time now is.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "viewer/model/background.h"
#include "viewer/model/stack/stack_picture.h"
#include "viewer/panels/timeline/lanes.h"
#include "viewer/widgets/pixels.h"

namespace tidemark::view {

class StackView {
 public:
  explicit StackView(std::shared_ptr<StackIndexes> indexes) : indexes_(std::move(indexes)) {}

  void set_wake(std::function<void()> wake) { work_.set_wake(std::move(wake)); }
  // Once per frame. At once: the picture is made before this returns.
  void update(const StackWish& wish, bool at_once);
  // The last one; null: there is none yet.
  const StackPicture* picture() const { return work_.value().get(); }
  const std::shared_ptr<const StackPicture>& shared_picture() const { return work_.value(); }
  // Whether the picture is the one that was wished for.
  bool is_current() const { return picture() != nullptr && picture()->wish == wish_; }
  // Drops the trace.
  void forget();

  // The height of a number of bytes in the picture.
  float y(const PlotArea& area, double bytes) const;
  void draw(const PlotArea& area);

  struct Hit {
    uint32_t band = 0;
    uint32_t column = 0;
    uint32_t event = 0;      // that the column shows
    uint64_t bytes = 0;      // of the band
    uint64_t all_bytes = 0;  // of the column
    uint64_t above = 0;      // bytes from the lower edge of the band
  };
  // What is at a point of the screen.
  std::optional<Hit> at(const PlotArea& area, ImVec2 point) const;
  // The column at a place.
  uint32_t column_at(const PlotArea& area, float x) const;

  // Draws the outline of a band.
  void outline(const PlotArea& area, uint32_t band, ImU32 colour, float thickness);
  // The band of a block; none: UINT32_MAX.
  uint32_t band_of(uint32_t block);

 private:
  // A part of a band that is flat, in columns and bytes.
  struct Piece {
    uint32_t first = 0;
    uint32_t last = 0;
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  struct Outline {
    const StackPicture* of = nullptr;
    uint32_t band = UINT32_MAX;
    std::vector<Piece> pieces;
  };

  // Where a column begins on the screen.
  float x(const PlotArea& area, uint32_t column) const;
  const Outline& outline_of(uint32_t band);

  std::shared_ptr<StackIndexes> indexes_;
  StackWish wish_;
  Background<std::shared_ptr<const StackPicture>> work_;
  Pixels pixels_;
  const StackPicture* drawn_ = nullptr;  // the one in pixels_
  Outline outlines_[2];                  // of the hovered and the chosen band
  size_t next_outline_ = 0;
  const StackPicture* found_in_ = nullptr;
  uint32_t found_block_ = UINT32_MAX;
  uint32_t found_band_ = UINT32_MAX;
};

}  // namespace tidemark::view
