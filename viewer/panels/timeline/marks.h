// Rows of annotations (NVTX ranges and those of the framework) below the curves of a process.
#pragma once

#include "viewer/panels/timeline/lanes.h"

namespace tidemark::view {

// 0: it has none.
float mark_rows_height(const Model& model, const Cursor& cursor, uint32_t process);
// Those whose name contains `search` stand out.
// The range under the mouse is returned; null: none.
const MarkRange* draw_marks(const Model& model, const std::string& search, uint32_t process,
                            const PlotArea& area);

}  // namespace tidemark::view
