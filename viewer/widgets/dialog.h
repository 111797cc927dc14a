// Windows that float above the panels: in the middle, no larger than the program's, with an edge.
#pragma once

#include <imgui.h>

namespace tidemark::view {

// A height of 0 fits what is in it. Call end_dialog() whatever it returns, as with ImGui::Begin.
bool begin_dialog(const char* title, bool* open, ImVec2 size);
void end_dialog();

}  // namespace tidemark::view
