// What is under the mouse in a stack: a block with its code and its life, or the bytes of a group.
#pragma once

#include "viewer/panels/timeline/stack_view.h"

namespace tidemark::view {

void explain_band(const StackPicture& picture, const StackView::Hit& hit);

}  // namespace tidemark::view
