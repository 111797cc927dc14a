// Shapes that ImGui does not have.
#pragma once

#include <imgui.h>

#include <string_view>
#include <vector>

#include "viewer/model/palette.h"

namespace tidemark::view {

// Diagonal lines inside a rectangle: rising, or falling.
void draw_hatch(ImDrawList& draw, ImVec2 min, ImVec2 max, ImU32 colour, float spacing,
                bool falling = false);
void draw_dashes(ImDrawList& draw, ImVec2 from, ImVec2 to, ImU32 colour, float dash,
                 float thickness);
// Text inside a box, cut to fit, centred vertically. Nothing when not even a few letters fit.
void draw_text_in(ImDrawList& draw, ImVec2 min, ImVec2 max, ImU32 colour, std::string_view text);
// A label on a coloured tab whose lower middle is at `at`, kept within [least_x, most_x].
void draw_flag(ImDrawList& draw, ImVec2 at, float least_x, float most_x, Rgb colour,
               std::string_view text);

struct BarPart {
  double amount = 0;
  Rgb colour;
  bool hatched = false;
  std::string_view label;
};
// A horizontal bar of parts; returns the part under the mouse or -1. `whole` is the amount that
// fills the bar.
int draw_bar(const char* id, const std::vector<BarPart>& parts, double whole, ImVec2 size);

}  // namespace tidemark::view
