// The small picture in the card of a finding: the band that grows, the holes, the rank that
// differs, the owner outside of the allocator.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "analysis/findings/finding.h"
#include "viewer/model/trace/finding_place.h"
#include "viewer/panels/timeline/stack_view.h"

namespace tidemark::view {

class ProofView {
 public:
  ProofView(std::shared_ptr<StackIndexes> indexes, const std::function<void()>& wake);

  // In the width that is left; nothing where the trace has no curve of what the finding is about.
  // True: it was clicked.
  bool draw(const Model& model, const Finding& finding, const FindingPlace& place, bool patient);

 private:
  void draw_ranks(const Model& model, const FindingPlace& place, const PlotArea& area);
  // What the finding is about, if that is not in the allocator. False: nothing is known of it.
  bool update_owner(const Model& model, const FindingPlace& place, const VisibleRange& view,
                    float width);
  void draw_owner(const Model& model, const FindingPlace& place, const PlotArea& area);
  void draw_stack(const Model& model, const Finding& finding, const FindingPlace& place,
                  const PlotArea& area, bool patient);

  StackView stack_;
  std::vector<LaneCurves> curves_;     // of some ranks
  std::vector<uint64_t> owner_bytes_;  // one for each column of pixels
};

}  // namespace tidemark::view
