// Where the program's iterations begin and what is unlike the others: stripes behind the curves,
// and a strip below them with the numbers and names.
#pragma once

#include "viewer/panels/timeline/lanes.h"
#include "viewer/widgets/labels.h"

namespace tidemark::view {

// How much of a lane's height the strip takes; 0 where there are no steps or no room.
float steps_strip_px(const Model& model, const Lane& lane, const TimelineOptions& options,
                     float lane_px);
// `area` is the plot, the strip lies below it.
void draw_steps(const Model& model, const Lane& lane, const PlotArea& area, float strip_px);

}  // namespace tidemark::view
