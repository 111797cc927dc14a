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
        read_pixels(reinterpret_cast<PFNGLREADPIXELSPROC>(find("glReadPixels"))) {}

  PFNGLVIEWPORTPROC viewport;
  PFNGLCLEARCOLORPROC clear_colour;
  PFNGLCLEARPROC clear;
  PFNGLPIXELSTOREIPROC pixel_store;
  PFNGLREADPIXELSPROC read_pixels;
};

}  // namespace tidemark::view
