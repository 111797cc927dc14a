// The calls of OpenGL that we make ourselves; ImGui's renderer loads its own. Nothing is linked, so
// that the program starts on a machine without OpenGL and can say what is missing.
#pragma once

#include <GL/glcorearb.h>

namespace tidemark::view {

struct GlCalls {
  // Valid while the context is current for which `find` answers.
  template <typename Find>
  explicit GlCalls(Find find)
      : viewport(reinterpret_cast<PFNGLVIEWPORTPROC>(find("glViewport"))),
        clear_colour(reinterpret_cast<PFNGLCLEARCOLORPROC>(find("glClearColor"))),
        clear(reinterpret_cast<PFNGLCLEARPROC>(find("glClear"))),
        pixel_store(reinterpret_cast<PFNGLPIXELSTOREIPROC>(find("glPixelStorei"))),
        read_pixels(reinterpret_cast<PFNGLREADPIXELSPROC>(find("glReadPixels"))),
        get_integer(reinterpret_cast<PFNGLGETINTEGERVPROC>(find("glGetIntegerv"))),
        make_textures(reinterpret_cast<PFNGLGENTEXTURESPROC>(find("glGenTextures"))),
        bind_texture(reinterpret_cast<PFNGLBINDTEXTUREPROC>(find("glBindTexture"))),
        set_texture(reinterpret_cast<PFNGLTEXPARAMETERIPROC>(find("glTexParameteri"))),
        fill_texture(reinterpret_cast<PFNGLTEXIMAGE2DPROC>(find("glTexImage2D"))),
        drop_textures(reinterpret_cast<PFNGLDELETETEXTURESPROC>(find("glDeleteTextures"))) {}

  PFNGLVIEWPORTPROC viewport;
  PFNGLCLEARCOLORPROC clear_colour;
  PFNGLCLEARPROC clear;
  PFNGLPIXELSTOREIPROC pixel_store;
  PFNGLREADPIXELSPROC read_pixels;
  PFNGLGETINTEGERVPROC get_integer;
  PFNGLGENTEXTURESPROC make_textures;
  PFNGLBINDTEXTUREPROC bind_texture;
  PFNGLTEXPARAMETERIPROC set_texture;
  PFNGLTEXIMAGE2DPROC fill_texture;
  PFNGLDELETETEXTURESPROC drop_textures;
};

}  // namespace tidemark::view
