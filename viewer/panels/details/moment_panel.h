// The memory at the cursor in numbers: what holds how much, and how fragmented the rest is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "viewer/model/tables/tables.h"
#include "viewer/model/trace/selection.h"

namespace tidemark::view {

class MomentPanel {
 public:
  static constexpr const char* kTitle = "At this moment";

  void draw(const Model& model, Selection& selection);

 private:
  void update(const Model& model, Selection& selection);
  // A part of a bar, and a line of the table below it.
  struct Entry {
    std::string name;
    std::string_view meaning;
    int64_t bytes = 0;
    Rgb colour;
    bool hatched = false;
    bool not_in_bar = false;  // listed only
  };
  std::vector<Entry> allocator_entries(const Lane& lane, const Moment& moment) const;
  std::vector<Entry> card_entries(const Model& model, const Lane& lane) const;
  static std::vector<Entry> pinned_entries(uint64_t driver_bytes, const TorchPinned& torch);
  void draw_entries(const char* id, const std::vector<Entry>& entries);
  void draw_ledger(const Model& model, const Lane& lane, const Moment& moment);
  void draw_pinned(const Model& model, const Cursor& cursor);
  void draw_categories(const Model& model, const Lane& lane, const Moment& moment);
  void draw_lines(const Model& model, const Lane& lane, const Moment& moment);

  const Model* model_ = nullptr;
  uint64_t version_ = 0;
  Ledger ledger_;
  std::vector<CategoryRow> categories_;
  std::vector<StackRow> lines_;
  std::vector<StackShare> pinned_stacks_;
};

}  // namespace tidemark::view
