// The memory at the cursor in numbers: who holds how much, and how broken up the rest is.
#pragma once

#include "viewer/model/selection.h"
#include "viewer/model/tables.h"

namespace tidemark::view {

class MomentPanel {
 public:
  static constexpr const char* kTitle = "At this moment";

  void draw(const Model& model, Selection& selection);

 private:
  void update(const Model& model, Selection& selection);
  void draw_ledger(const Lane& lane, const Moment& moment);
  void draw_categories(const Moment& moment);
  void draw_stacks(const Model& model, const Lane& lane, const Moment& moment);

  const Model* model_ = nullptr;
  uint64_t version_ = 0;
  std::vector<CategoryRow> categories_;
  std::vector<StackRow> stacks_;
};

}  // namespace tidemark::view
