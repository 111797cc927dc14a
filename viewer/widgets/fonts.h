// The fonts of the system. None is shipped; where the system has none, ImGui's built-in font is
// used.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <vector>

namespace tidemark::view {

struct Fonts {
  ImFont* body = nullptr;
  ImFont* bold = nullptr;
  ImFont* mono = nullptr;
  ImFont* title = nullptr;
};

const Fonts& fonts();
// The built-in font looks the same on every machine, for pictures that are compared.
enum class FontSource : uint8_t { kSystem, kBuiltIn };
// Characters of the trace outside of Latin scripts. True: some are new, and load_fonts() must be
// called again to draw them.
bool need_characters(const std::vector<char16_t>& characters);
// Fills the current ImGui context's atlas; call again when the scale changes.
void load_fonts(float scale, FontSource source = FontSource::kSystem);

// Uses a font until the end of the block.
class WithFont {
 public:
  explicit WithFont(ImFont* font) { ImGui::PushFont(font); }
  ~WithFont() { ImGui::PopFont(); }
  WithFont(const WithFont&) = delete;
  WithFont& operator=(const WithFont&) = delete;
};

}  // namespace tidemark::view
