// Findings, out-of-memory errors and what the trace is missing, as cards.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "viewer/model/trace/finding_choice.h"
#include "viewer/model/trace/finding_place.h"
#include "viewer/panels/findings/proof_view.h"

namespace tidemark::view {

// Goes there and brings the panel that proves the finding to the front, beside the findings.
void show_proof(const Model& model, Selection& selection, const FindingPlace& place);

class FindingsPanel {
 public:
  static constexpr const char* kTitle = "Findings";

  explicit FindingsPanel(std::shared_ptr<StackIndexes> indexes) : indexes_(std::move(indexes)) {}

  void draw(const Model& model, Selection& selection);
  // `wake` asks for a new frame, from any thread.
  void set_wake(std::function<void()> wake) { wake_ = std::move(wake); }
  // A later trace may get the same address.
  void forget_trace();
  // Scrolls to what the trace is missing.
  void show_losses() { scroll_frames_ = 3; }
  // For pictures: a frame waits for what it shows.
  bool patient = false;

 private:
  void update(const Model& model);
  void draw_finding(const Model& model, Selection& selection, const SameFindings& same);
  void draw_largest(const Model& model, size_t index);
  void draw_advice(const Model& model, const Finding& finding, size_t index);
  void draw_oom(const Model& model, Selection& selection, const SameOoms& same);
  void draw_losses(const Model& model);

  std::shared_ptr<StackIndexes> indexes_;
  std::function<void()> wake_;
  const Model* model_ = nullptr;
  std::vector<std::unique_ptr<ProofView>> proofs_;   // one per finding of the report
  std::vector<std::optional<FindingPlace>> places_;  // one per finding of the report
  std::vector<SameFindings> findings_;               // a card each
  std::vector<SameOoms> ooms_;
  int scroll_frames_ = 0;  // left to bring what is missing into view
};

}  // namespace tidemark::view
