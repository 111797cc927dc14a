// Textures of OpenGL for viewer/widgets/pixels.h.
#pragma once

namespace tidemark::view {

struct GlCalls;

// The context must be current whenever a frame is drawn. leave_textures() before it is destroyed.
void use_gl_textures(const GlCalls& gl);
void leave_textures();

}  // namespace tidemark::view
