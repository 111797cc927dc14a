// Colours and spacing of the whole program, dark and light.
#pragma once

#include <imgui.h>

#include "viewer/model/palette.h"

namespace tidemark::view {

struct Theme {
  bool dark = true;
  float scale = 1;  // HiDPI: multiply every length in pixels by it

  Rgb background;
  Rgb panel;
  Rgb raised;  // cards, bars, headers
  Rgb line;    // borders, grid
  Rgb text;
  Rgb dim;  // secondary text
  Rgb accent;

  Rgb allocated;
  Rgb requested;
  Rgb reserved;
  Rgb used;     // of the whole card, by all processes
  Rgb pending;  // freed, but still used by another stream
  Rgb limit;
  Rgb cursor;
  Rgb compare;
  Rgb hole;

  Rgb bad;
  Rgb warning;
  Rgb good;
};

const Theme& theme();
// Sets the theme and ImGui's and ImPlot's style from it.
void apply_theme(bool dark, float scale);

inline ImU32 paint(Rgb c, int alpha = 255) {
  return IM_COL32(c.r, c.g, c.b, alpha);
}
ImVec4 vec(Rgb c, float alpha = 1);
// A length in pixels at the current scale.
inline float px(float length) {
  return length * theme().scale;
}

}  // namespace tidemark::view
