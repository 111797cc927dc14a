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
};

// Of the frame that was rendered last.
std::vector<Letter> drawn_letters();

// Letters that a border cuts through on the left or right.
std::vector<Letter> cut_letters(const std::vector<Letter>& letters);
// Letters that lie on one another.
std::vector<Letter> covered_letters(const std::vector<Letter>& letters);

}  // namespace tidemark::view
