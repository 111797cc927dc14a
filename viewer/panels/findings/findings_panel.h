// Findings, out-of-memory errors and what the trace is missing, as cards.
#pragma once

#include <optional>
#include <vector>

#include "viewer/model/trace/finding_place.h"

namespace tidemark::view {

class FindingsPanel {
 public:
  static constexpr const char* kTitle = "Findings";

  void draw(const Model& model, Selection& selection);

 private:
  void draw_finding(const Model& model, Selection& selection, size_t index);
  void draw_oom(const Model& model, Selection& selection, const OomPoint& oom, size_t index);
  void draw_losses(const Model& model);

  const Model* model_ = nullptr;
  std::vector<std::optional<FindingPlace>> places_;  // one per finding of the report
};

}  // namespace tidemark::view
