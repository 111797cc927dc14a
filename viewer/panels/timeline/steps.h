// Where the program's iterations begin, and which of them are unlike the others: stripes behind the
// curves, and a strip below them with numbers and names.
#pragma once

#include "viewer/panels/timeline/lanes.h"
#include "viewer/widgets/labels.h"

namespace tidemark::view {

// The height of the strip; 0 where there are no steps or no space.
float steps_strip_px(const Model& model, const Lane& lane, const TimelineOptions& options,
                     float lane_px);
// `area` is the plot; the strip is below it.
void draw_steps(const Model& model, const Lane& lane, const PlotArea& area, float strip_px);

// Marks the phase or step at a time since the start as measured, as a click on its name does.
void measure_step(const Model& model, const Lane& lane, double time, Selection& selection);

}  // namespace tidemark::view
