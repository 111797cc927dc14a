// Rows of annotations (NVTX ranges, the framework's own) below the curves of a process.
#pragma once

#include "viewer/panels/timeline/lanes.h"

namespace tidemark::view {

// 0: it has none.
float mark_rows_height(const Model& model, const Selection& selection, uint32_t process);
void draw_marks(const Model& model, const Selection& selection, uint32_t process,
                const PlotArea& area);

}  // namespace tidemark::view
