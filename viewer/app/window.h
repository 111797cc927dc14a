// The window: GLFW and OpenGL around a Shell.
#pragma once

#include <string>

#include "viewer/app/config.h"

namespace tidemark::view {

struct WindowOptions {
  std::string path;  // opened at once; empty: the welcome page
  int width = 1440;
  int height = 900;
  float scale = 0;  // 0: the monitor's
  int frames = 0;   // closes after so many frames with a trace in view; 0: never
};

// Runs until the window is closed. Returns the exit status; complaints go to stderr.
int run_window(const WindowOptions& options, Config config);

}  // namespace tidemark::view
