// The letters of a frame, found in what ImGui hands to the graphics card: nothing that is drawn can
// hide from it.
#pragma once

#include <imgui.h>
#include <imgui_internal.h>

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

// Of the frame that was rendered last.
std::vector<Letter> drawn_letters();

// All that can be read in the windows whose names contain this, without its spaces.
std::string read_window(const std::string& name);
std::string without_spaces(const std::string& text);
// Whether anything in such a window is drawn in this colour, however transparent.
bool painted(const std::string& name, unsigned char r, unsigned char g, unsigned char b);

// Letters that a border cuts through on the left or right.
std::vector<Letter> cut_letters(const std::vector<Letter>& letters);
// Letters that lie on one another.
std::vector<Letter> covered_letters(const std::vector<Letter>& letters);

}  // namespace tidemark::view
