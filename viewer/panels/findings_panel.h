// What is wrong, in cards: findings, out-of-memory errors, and what the trace is missing.
#pragma once

#include "viewer/model/selection.h"

namespace tidemark::view {

class FindingsPanel {
 public:
  static constexpr const char* kTitle = "Findings";

  void draw(const Model& model, Selection& selection);

 private:
  void draw_finding(const Finding& finding, int id);
  void draw_oom(const Model& model, Selection& selection, const OomPoint& oom, size_t index);
  void draw_losses(const Model& model);
};

}  // namespace tidemark::view
