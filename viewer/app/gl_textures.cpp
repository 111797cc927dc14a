#include "viewer/app/gl_textures.h"

#include <GL/gl.h>
#include <GL/glext.h>

#include "viewer/widgets/pixels.h"

namespace tidemark::view {

namespace {

ImTextureID make_texture(int width, int height, std::span<const uint32_t> rgba) {
  GLuint name = 0;
  GLint before = 0;
  glGetIntegerv(GL_TEXTURE_BINDING_2D, &before);
  glGenTextures(1, &name);
  glBindTexture(GL_TEXTURE_2D, name);
  // A picture is drawn pixel for pixel, or stretched until the next one is made.
  glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, GL_LINEAR);
  glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MAG_FILTER, GL_NEAREST);
  glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_WRAP_S, GL_CLAMP_TO_EDGE);
  glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_WRAP_T, GL_CLAMP_TO_EDGE);
  glPixelStorei(GL_UNPACK_ROW_LENGTH, 0);
  glPixelStorei(GL_UNPACK_ALIGNMENT, 4);
  glTexImage2D(GL_TEXTURE_2D, 0, GL_RGBA, width, height, 0, GL_RGBA, GL_UNSIGNED_BYTE, rgba.data());
  glBindTexture(GL_TEXTURE_2D, static_cast<GLuint>(before));
  return reinterpret_cast<ImTextureID>(static_cast<intptr_t>(name));
}

}  // namespace

void use_gl_textures() {
  set_texture_maker({make_texture, [](ImTextureID texture) {
                       const auto name = static_cast<GLuint>(reinterpret_cast<intptr_t>(texture));
                       glDeleteTextures(1, &name);
                     }});
}

void leave_textures() {
  set_texture_maker({});
}

}  // namespace tidemark::view
