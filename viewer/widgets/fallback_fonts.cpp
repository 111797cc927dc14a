#include "viewer/widgets/fallback_fonts.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#define STB_TRUETYPE_IMPLEMENTATION
#define STBTT_STATIC
#include <imstb_truetype.h>

namespace tidemark::view {

namespace {

namespace fs = std::filesystem;

// Reading more would delay the first frame; the largest CJK collections have 20 MiB.
constexpr uintmax_t kMostFontBytes = 64U << 20;
constexpr size_t kMostFonts = 400;

// The lower, the better it suits a label: upright, of normal weight, without serifs.
int unsuitable(const std::string& name) {
  int score = 0;
  for (const char* style : {"Bold", "Italic", "Oblique", "Light", "Thin", "Black", "Condensed",
                            "Serif", "Mono", "Math", "Emoji"}) {
    if (name.find(style) != std::string::npos) ++score;
  }
  return score;
}

std::vector<std::string> installed_fonts() {
  std::vector<fs::path> folders = {"/usr/share/fonts", "/usr/local/share/fonts"};
  if (const char* home = std::getenv("HOME"); home != nullptr) {
    folders.push_back(fs::path(home) / ".fonts");
    folders.push_back(fs::path(home) / ".local/share/fonts");
  }
  std::vector<std::pair<int, std::string>> found;
  for (const fs::path& folder : folders) {
    std::error_code error;
    for (fs::recursive_directory_iterator
             it(folder, fs::directory_options::skip_permission_denied, error),
         end;
         !error && it != end && found.size() < kMostFonts; it.increment(error)) {
      const std::string ending = it->path().extension().string();
      if (ending != ".ttf" && ending != ".otf" && ending != ".ttc") continue;
      found.emplace_back(unsuitable(it->path().filename().string()), it->path().string());
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  for (auto& [score, path] : found) paths.push_back(std::move(path));
  return paths;
}

std::vector<unsigned char> read_font(const std::string& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error || size < 12 || size > kMostFontBytes) return {};
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Those of the characters that the font has.
std::vector<ImWchar> characters_in(const std::string& path, const std::vector<ImWchar>& wanted) {
  const std::vector<unsigned char> data = read_font(path);
  if (data.empty()) return {};
  const int offset = stbtt_GetFontOffsetForIndex(data.data(), 0);
  stbtt_fontinfo font;
  if (offset < 0 || stbtt_InitFont(&font, data.data(), offset) == 0) return {};
  std::vector<ImWchar> found;
  std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(found),
               [&](ImWchar c) { return stbtt_FindGlyphIndex(&font, c) != 0; });
  return found;
}

// Pairs of first and last; the characters are sorted.
std::vector<ImWchar> ranges_of(const std::vector<ImWchar>& characters) {
  std::vector<ImWchar> ranges;
  for (const ImWchar c : characters) {
    if (!ranges.empty() && ranges.back() + 1 == c) {
      ranges.back() = c;
    } else {
      ranges.push_back(c);
      ranges.push_back(c);
    }
  }
  ranges.push_back(0);
  return ranges;
}

}  // namespace

std::vector<FallbackFont> fonts_for(std::vector<ImWchar> characters, const std::string& preferred) {
  std::vector<FallbackFont> fonts;
  if (characters.empty()) return fonts;
  std::sort(characters.begin(), characters.end());
  std::vector<std::string> paths = installed_fonts();
  if (!preferred.empty()) paths.insert(paths.begin(), preferred);
  for (const std::string& path : paths) {
    const std::vector<ImWchar> found = characters_in(path, characters);
    if (found.empty()) continue;
    fonts.push_back({path, ranges_of(found)});
    std::erase_if(characters,
                  [&](ImWchar c) { return std::binary_search(found.begin(), found.end(), c); });
    if (characters.empty()) break;
  }
  return fonts;
}

}  // namespace tidemark::view
