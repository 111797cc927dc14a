// Fonts of the system for characters that the program's own fonts lack.
#pragma once

#include <imgui.h>

#include <string>
#include <vector>

namespace tidemark::view {

struct FallbackFont {
  std::string path;
  std::vector<ImWchar> ranges;  // of the characters it is used for; ends with 0
};

// Fonts that together have as many of the characters as any installed ones do; `preferred` (a path,
// may be empty) comes first.
std::vector<FallbackFont> fonts_for(std::vector<ImWchar> characters, const std::string& preferred);

}  // namespace tidemark::view
