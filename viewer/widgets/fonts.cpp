#include "viewer/widgets/fonts.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <utility>

#include "viewer/widgets/fallback_fonts.h"

namespace tidemark::view {

namespace {

Fonts current;

std::vector<ImWchar> needed;  // sorted
// ImGui reads the ranges when it builds the atlas.
std::vector<FallbackFont> fallbacks;

// Where Debian, Ubuntu, Fedora and Arch put them.
constexpr std::initializer_list<const char*> kFolders = {
    "/usr/share/fonts/truetype/inter/",         "/usr/share/fonts/opentype/inter/",
    "/usr/share/fonts/truetype/dejavu/",        "/usr/share/fonts/dejavu-sans-fonts/",
    "/usr/share/fonts/dejavu-sans-mono-fonts/", "/usr/share/fonts/TTF/"};

std::string find_font(std::initializer_list<const char*> names) {
  std::error_code error;
  for (const char* name : names) {
    for (const char* folder : kFolders) {
      const std::string path = std::string(folder) + name;
      if (std::filesystem::is_regular_file(path, error)) return path;
    }
  }
  return {};
}

// Adds the characters that the font added last does not have.
void add_fallbacks(float size) {
  for (const FallbackFont& fallback : fallbacks) {
    ImFontConfig config;
    config.MergeMode = true;
    config.OversampleH = 1;
    ImGui::GetIO().Fonts->AddFontFromFileTTF(fallback.path.c_str(), size, &config,
                                             fallback.ranges.data());
  }
}

ImFont* add(const std::string& path, float size) {
  ImFontAtlas& atlas = *ImGui::GetIO().Fonts;
  // Latin, punctuation, arrows and the shapes used as symbols.
  static constexpr ImWchar kRanges[] = {0x20,   0x17F,  0x2010, 0x2027, 0x2190,
                                        0x2193, 0x25A0, 0x25CF, 0};
  ImFontConfig config;
  config.OversampleH = 2;
  config.OversampleV = 1;
  if (!path.empty()) {
    if (ImFont* font = atlas.AddFontFromFileTTF(path.c_str(), size, &config, kRanges)) {
      add_fallbacks(size);
      return font;
    }
  }
  config.SizePixels = std::round(size * 0.87F);  // the built-in font is wider at the same size
  config.OversampleH = 1;
  ImFont* font = atlas.AddFontDefault(&config);
  add_fallbacks(size);
  return font;
}

}  // namespace

const Fonts& fonts() {
  return current;
}

bool need_characters(const std::vector<char16_t>& characters) {
  std::vector<ImWchar> all = needed;
  all.insert(all.end(), characters.begin(), characters.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  const bool more = all.size() > needed.size();
  needed = std::move(all);
  return more;
}

void load_fonts(float scale, FontSource source) {
  ImGui::GetIO().Fonts->Clear();
  const auto find = [source](std::initializer_list<const char*> names) {
    return source == FontSource::kSystem ? find_font(names) : std::string();
  };
  const std::string regular = find({"Inter-Regular.ttf", "Inter-Regular.otf", "DejaVuSans.ttf"});
  const std::string bold =
      find({"Inter-SemiBold.ttf", "Inter-SemiBold.otf", "Inter-Bold.otf", "DejaVuSans-Bold.ttf"});
  const std::string mono = find({"DejaVuSansMono.ttf"});
  fallbacks.clear();
  if (source == FontSource::kSystem) fallbacks = fonts_for(needed, regular);
  const auto size = [scale](float points) { return std::round(points * scale); };
  current.body = add(regular, size(14));
  current.bold = add(bold, size(14));
  current.mono = add(mono, size(13));
  current.title = add(bold, size(18));
}

}  // namespace tidemark::view
