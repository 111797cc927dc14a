// The window: GLFW and OpenGL for a Shell.
#pragma once

#include <string>
#include <vector>

#include "viewer/app/config.h"
#include "viewer/app/start_view.h"

namespace tidemark::view {

struct WindowOptions {
  std::vector<std::string> paths;  // opened at the start; none: the welcome page; two: compared
  StartView start;
  bool follow = false;  // reload as it grows
  int width = 1440;
  int height = 900;
  float scale = 0;  // 0: as the monitor needs it
  int frames = 0;   // closes after this many frames with a trace; 0: never
};

// Runs until the window is closed. Returns the exit status; errors go to stderr.
int run_window(const WindowOptions& options, Config config);

}  // namespace tidemark::view
