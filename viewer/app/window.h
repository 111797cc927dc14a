// The window: GLFW and OpenGL around a Shell.
#pragma once

#include <string>
#include <vector>

#include "viewer/app/config.h"

namespace tidemark::view {

struct WindowOptions {
  std::vector<std::string> paths;  // opened at once; none: the welcome page; two: to compare
  bool follow = false;             // read again as it grows
  int width = 1440;
  int height = 900;
  float scale = 0;  // 0: the monitor's
  int frames = 0;   // closes after so many frames with a trace in view; 0: never
};

// Runs until the window is closed. Returns the exit status; complaints go to stderr.
int run_window(const WindowOptions& options, Config config);

}  // namespace tidemark::view
