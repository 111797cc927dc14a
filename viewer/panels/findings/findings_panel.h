// Findings, out-of-memory errors and what the trace is missing, as cards.
#pragma once

#include <optional>
#include <vector>

#include "viewer/model/trace/finding_choice.h"
#include "viewer/model/trace/finding_place.h"

namespace tidemark::view {

// Goes there and brings the panel that proves the finding to the front, beside the findings.
void show_proof(const Model& model, Selection& selection, const FindingPlace& place);

class FindingsPanel {
 public:
  static constexpr const char* kTitle = "Findings";

  void draw(const Model& model, Selection& selection);

 private:
  void update(const Model& model);
  void draw_finding(const Model& model, Selection& selection, const SameFindings& same);
  void draw_advice(const Model& model, const Finding& finding, size_t index);
  void draw_oom(const Model& model, Selection& selection, const SameOoms& same);
  void draw_losses(const Model& model);

  const Model* model_ = nullptr;
  std::vector<std::optional<FindingPlace>> places_;  // one per finding of the report
  std::vector<SameFindings> findings_;               // a card each
  std::vector<SameOoms> ooms_;
};

}  // namespace tidemark::view
