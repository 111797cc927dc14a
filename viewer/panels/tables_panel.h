// The live blocks at the cursor as tables: one by one, by stack, by category, by segment.
#pragma once

#include <string>
#include <vector>

#include "viewer/model/selection.h"
#include "viewer/model/tables.h"

namespace tidemark::view {

class TablesPanel {
 public:
  static constexpr const char* kTitle = "Tables";

  void draw(const Model& model, Selection& selection);

  // How many rows the table in front has under the current filter.
  size_t rows_shown() const { return rows_shown_; }

 private:
  // What a table was made from; made again when any of it changes.
  struct Key {
    const Model* model = nullptr;
    uint64_t version = 0;
    std::string filter;
    SortBy sort;

    bool update(const Key& now);
  };

  bool refresh(Key& key, const Model& model, const Selection& selection);
  void draw_allocations(const Model& model, Selection& selection);
  void draw_stacks(const Model& model, Selection& selection);
  void draw_categories(const Model& model, Selection& selection);
  void draw_segments(const Model& model, Selection& selection);

  size_t rows_shown_ = 0;
  Key allocations_key_;
  std::vector<uint32_t> allocations_;
  Key stacks_key_;
  std::vector<StackRow> stacks_;
  Key categories_key_;
  std::vector<CategoryRow> categories_;
  Key segments_key_;
  std::vector<uint32_t> segments_;
};

}  // namespace tidemark::view
