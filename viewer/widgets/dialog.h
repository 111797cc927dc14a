// Windows that open above the panels: centred, no larger than the program's window, with a border.
#pragma once

#include <imgui.h>

namespace tidemark::view {

// With a height of 0 the dialog fits its content. As with ImGui::Begin, call end_dialog() whatever
// it returns.
bool begin_dialog(const char* title, bool* open, ImVec2 size);
void end_dialog();

}  // namespace tidemark::view
