// The allocator's actions around the cursor, to click through.
#pragma once

#include <vector>

#include "viewer/model/tables/action_rows.h"
#include "viewer/model/trace/selection.h"

namespace tidemark::view {

class ActionsTable {
 public:
  // Returns the number of rows.
  size_t draw(const Model& model, Selection& selection);

 private:
  void draw_row(const Model& model, Selection& selection, const ActionRow& row, bool here);

  const Model* model_ = nullptr;
  uint64_t version_ = 0;
  uint32_t event_ = 0;  // of the cursor, when last drawn
  std::vector<ActionRow> rows_;
  int scroll_frames_ = 0;  // left to bring the cursor's row into view
};

}  // namespace tidemark::view
