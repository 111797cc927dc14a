// The fonts, taken from the system. None is shipped: without them ImGui's own is used.
#pragma once

#include <imgui.h>

namespace tidemark::view {

struct Fonts {
  ImFont* body = nullptr;
  ImFont* bold = nullptr;
  ImFont* mono = nullptr;
  ImFont* title = nullptr;
};

const Fonts& fonts();
// Fills the current ImGui context's atlas; call again when the scale changes.
void load_fonts(float scale);

// Uses a font until the end of the block.
class WithFont {
 public:
  explicit WithFont(ImFont* font) { ImGui::PushFont(font); }
  ~WithFont() { ImGui::PopFont(); }
  WithFont(const WithFont&) = delete;
  WithFont& operator=(const WithFont&) = delete;
};

}  // namespace tidemark::view
