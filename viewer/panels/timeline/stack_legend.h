// The groups of a stack with their bytes at the cursor, and which of them are shown.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "viewer/model/background.h"
#include "viewer/model/stack/stack_picture.h"
#include "viewer/model/tables/colour_rows.h"
#include "viewer/model/trace/cursor.h"

namespace tidemark::view {

// Two events of the lane whose bytes are listed side by side, instead of those at the cursor.
struct LegendPair {
  std::array<uint32_t, 2> events{};
  std::array<std::string, 2> names;
};

class StackLegend {
 public:
  void set_wake(std::function<void()> wake) { work_.set_wake(std::move(wake)); }
  // All groups of the picture, in the space that is left; where the colours of its blocks mean
  // something else, what they mean. Nothing if the picture is not of the cursor's lane (null: there
  // is none).
  void draw(const Model& model, Cursor& cursor, const std::shared_ptr<const StackPicture>& picture,
            bool at_once, const std::optional<LegendPair>& pair = std::nullopt);
  void forget();

  // Of the groups; empty: none.
  const std::vector<bool>& hidden() const { return hidden_; }
  void show_all() { hidden_.clear(); }
  // Only this group; once more: all.
  void isolate(uint32_t group, uint32_t count);
  void toggle(uint32_t group, uint32_t count);

 private:
  // At the cursor.
  struct Bytes {
    std::shared_ptr<const StackIndex> index;
    std::vector<uint64_t> held;
    std::vector<uint64_t> free;   // of segments
    std::vector<uint64_t> other;  // held at the second event of a pair; empty: there is none
    std::vector<uint32_t> order;  // groups that occur in the picture or at the cursor
  };

  static std::shared_ptr<const Bytes> bytes_at(const StackPicture& picture, uint32_t event,
                                               std::optional<uint32_t> other);
  static void draw_pair_names(const LegendPair& pair);
  void draw_row(const Bytes& shown, uint32_t group);
  static void draw_free_by_pool(const Bytes& shown);
  void draw_groups(const Bytes& shown);
  void draw_colours(const Model& model, Cursor& cursor, const StackPicture& picture);
  bool is_hidden(uint32_t group) const { return group < hidden_.size() && hidden_[group]; }

  Background<std::shared_ptr<const Bytes>> work_;
  std::shared_ptr<const StackPicture> picture_;  // of the last wish, with event_
  uint32_t event_ = UINT32_MAX;
  std::optional<uint32_t> other_event_;
  std::vector<bool> hidden_;
  // What the colours mean at the cursor, other than groups.
  std::vector<ColourRow> colours_;
  std::shared_ptr<const Moment> colours_at_;
  ColourBy colours_by_ = ColourBy::kCategory;
};

}  // namespace tidemark::view
