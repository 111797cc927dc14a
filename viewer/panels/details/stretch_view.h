// How much was allocated, freed and kept in a stretch of time, as lines of a panel.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "viewer/model/background.h"
#include "viewer/model/flame/stretch.h"
#include "viewer/model/trace/selection.h"

namespace tidemark::view {

class StretchView {
 public:
  void set_wake(std::function<void()> wake) { work_.set_wake(std::move(wake)); }
  void draw(const Model& model, uint32_t lane, const TimeRange& range, float column);

  // For tests; of what was drawn last.
  const StretchSums& sums() const { return work_.value(); }

 private:
  std::weak_ptr<const Model> of_;
  uint32_t lane_ = UINT32_MAX;
  TimeRange range_;
  Background<StretchSums> work_;
};

}  // namespace tidemark::view
