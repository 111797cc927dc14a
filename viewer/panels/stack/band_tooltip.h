// What is under the mouse in a stack: a block with its code and its life, or the bytes of a group.
#pragma once

#include <imgui.h>

#include "viewer/panels/timeline/stack_view.h"

namespace tidemark::view {

// The box lies over the plot, from `min` to `max`, where that is wide enough, and not over the
// panels beside it.
void explain_band(const StackPicture& picture, const StackView::Hit& hit, ImVec2 min, ImVec2 max);

}  // namespace tidemark::view
