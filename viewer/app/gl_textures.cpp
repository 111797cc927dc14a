#include "viewer/app/gl_textures.h"

#include "viewer/app/gl_calls.h"
#include "viewer/widgets/pixels.h"

namespace tidemark::view {

namespace {

ImTextureID make_texture(const GlCalls& gl, int width, int height, std::span<const uint32_t> rgba) {
  GLuint name = 0;
  GLint before = 0;
  gl.get_integer(GL_TEXTURE_BINDING_2D, &before);
  gl.make_textures(1, &name);
  gl.bind_texture(GL_TEXTURE_2D, name);
  // A picture is drawn pixel for pixel, or stretched until the next one is made.
  gl.set_texture(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, GL_LINEAR);
  gl.set_texture(GL_TEXTURE_2D, GL_TEXTURE_MAG_FILTER, GL_NEAREST);
  gl.set_texture(GL_TEXTURE_2D, GL_TEXTURE_WRAP_S, GL_CLAMP_TO_EDGE);
  gl.set_texture(GL_TEXTURE_2D, GL_TEXTURE_WRAP_T, GL_CLAMP_TO_EDGE);
  gl.pixel_store(GL_UNPACK_ROW_LENGTH, 0);
  gl.pixel_store(GL_UNPACK_ALIGNMENT, 4);
  gl.fill_texture(GL_TEXTURE_2D, 0, GL_RGBA, width, height, 0, GL_RGBA, GL_UNSIGNED_BYTE,
                  rgba.data());
  gl.bind_texture(GL_TEXTURE_2D, static_cast<GLuint>(before));
  return reinterpret_cast<ImTextureID>(static_cast<intptr_t>(name));
}

}  // namespace

void use_gl_textures(const GlCalls& gl) {
  set_texture_maker({[gl](int width, int height, std::span<const uint32_t> rgba) {
                       return make_texture(gl, width, height, rgba);
                     },
                     [gl](ImTextureID texture) {
                       const auto name = static_cast<GLuint>(reinterpret_cast<intptr_t>(texture));
                       gl.drop_textures(1, &name);
                     }});
}

void leave_textures() {
  set_texture_maker({});
}

}  // namespace tidemark::view
