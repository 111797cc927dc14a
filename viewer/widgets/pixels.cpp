#include "viewer/widgets/pixels.h"

#include <utility>

namespace tidemark::view {

namespace {

TextureMaker& maker() {
  static TextureMaker made;
  return made;
}

void drop(ImTextureID texture) {
  if (texture != nullptr && maker().drop) maker().drop(texture);
}

}  // namespace

void set_texture_maker(TextureMaker textures) {
  maker() = std::move(textures);
}

Pixels::~Pixels() {
  drop(texture_);
}

void Pixels::set(int width, int height, std::span<const uint32_t> rgba) {
  if (!maker().make) return;
  // The new one first, so that its number differs: frames are compared by it.
  const ImTextureID made = maker().make(width, height, rgba);
  drop(std::exchange(texture_, made));
}

void Pixels::draw(ImDrawList& draw, ImVec2 min, ImVec2 max) const {
  if (texture_ != nullptr) draw.AddImage(texture_, min, max);
}

}  // namespace tidemark::view
