// Draws without a display: EGL without a surface, into a framebuffer.
#pragma once

#include <functional>
#include <memory>

#include "viewer/app/png_file.h"
#include "viewer/widgets/fonts.h"

namespace tidemark::view {

// Holds an ImGui context and a GL context. Only one object at a time, on one thread.
class Headless {
 public:
  static Result<std::unique_ptr<Headless>> create(int width, int height, bool dark, float scale,
                                                  FontSource source = FontSource::kSystem);
  ~Headless();
  Headless(const Headless&) = delete;
  Headless& operator=(const Headless&) = delete;

  // Draws `frames` frames, since a docked layout needs a few to settle, and returns the last.
  Image render(const std::function<void()>& draw, int frames = 6);

 private:
  struct Gl;
  explicit Headless(std::unique_ptr<Gl> gl);
  std::unique_ptr<Gl> gl_;
};

}  // namespace tidemark::view
