// Starts a program with the injector, forwards signals to it and returns how it ended.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "proto/base/result.h"

namespace tidemark {

// The environment variable that names one launch. The recorder keeps it as a setting of the trace.
inline constexpr char kRunVariable[] = "TIDEMARK_RUN";

struct LaunchOptions {
  std::vector<std::string> command;
  std::string injector;   // path of libtidemark.so
  std::string directory;  // where the traces go; created 0700. "": the program is only armed
  std::vector<std::pair<std::string, std::string>> environment;  // TIDEMARK_… for the program
};

struct LaunchResult {
  int exit_code = 0;            // of the program, if it exited
  int signal = 0;               // the signal that ended it, 0 if none
  int start_error = 0;          // errno of exec, if the program could not be started
  bool made_directory = false;  // it did not exist before
  std::string run{};            // what kRunVariable was for the program
};

// Finds libtidemark.so next to this program, in the build tree or in an installation.
Result<std::string> find_injector();

// An Error when no process could be made for the program.
Result<LaunchResult> launch(const LaunchOptions& options);

}  // namespace tidemark
