// Pictures that are made pixel by pixel. The window, or what draws without one, brings the
// textures; without it, as in tests, pictures are made but not shown.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <functional>
#include <span>

namespace tidemark::view {

struct TextureMaker {
  // RGBA from the upper left. Never the number of a texture that still exists.
  std::function<ImTextureID(int width, int height, std::span<const uint32_t> rgba)> make;
  std::function<void(ImTextureID)> drop;
};

// Before the first frame. Empty functions: there are no textures any more.
void set_texture_maker(TextureMaker maker);

// One picture on the graphics card. Belongs to the drawing thread.
class Pixels {
 public:
  Pixels() = default;
  ~Pixels();
  Pixels(const Pixels&) = delete;
  Pixels& operator=(const Pixels&) = delete;

  void set(int width, int height, std::span<const uint32_t> rgba);
  void draw(ImDrawList& draw, ImVec2 min, ImVec2 max) const;

 private:
  ImTextureID texture_ = nullptr;
};

}  // namespace tidemark::view
