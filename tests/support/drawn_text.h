// The letters of a frame, found in the draw data that ImGui sends to the graphics card, so that
// none is missed.
#pragma once

#include <imgui.h>
#include <imgui_internal.h>

#include <optional>
#include <string>
#include <vector>

namespace tidemark::view {

struct Letter {
  ImRect box;
  ImRect clip;
  std::string window;
  unsigned int code = 0;  // Unicode
  ImU32 ink = 0;
};

// Of the last rendered frame.
std::vector<Letter> drawn_letters();

// All text in the windows whose names contain this, without spaces.
std::string read_window(const std::string& name);
// The middle of the first letter of this text in them; none: it is not there.
std::optional<ImVec2> place_of_text(const std::string& name, const std::string& text);
std::string without_spaces(const std::string& text);
// Whether anything in such a window is drawn in this colour, at any opacity.
bool painted(const std::string& name, unsigned char r, unsigned char g, unsigned char b);

// Units ("MiB") that a letter follows without a space, with it: "MiBof".
std::vector<std::string> glued_units(const std::vector<Letter>& letters);
// Letters that are cut off on the left or right.
std::vector<Letter> cut_letters(const std::vector<Letter>& letters);
// Letters that overlap.
std::vector<Letter> covered_letters(const std::vector<Letter>& letters);

}  // namespace tidemark::view
