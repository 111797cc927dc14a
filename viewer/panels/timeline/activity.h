// Kernels and collectives below the curves, on the same time axis.
#pragma once

#include <optional>
#include <vector>

#include "viewer/panels/timeline/lanes.h"

namespace tidemark::view {

// The rows of a process that are drawn, from top to bottom, and how many more there are.
struct ActivityRows {
  std::vector<uint32_t> shown;
  uint32_t hidden = 0;

  float height() const;
};
ActivityRows activity_rows(const Model& model, const Cursor& cursor, uint32_t process,
                           const TimelineOptions& options);

// Draws into the area and returns what is under the mouse; of several, the longest.
std::optional<ActivityRef> draw_activity(const Model& model, const Highlights& highlights,
                                         uint32_t process, const ActivityRows& rows,
                                         const PlotArea& area, bool hovered);

}  // namespace tidemark::view
