// Starts a program with the injector and stays out of its way: signals are passed on, its end is
// our end.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "proto/base/result.h"

namespace tidemark {

struct LaunchOptions {
  std::vector<std::string> command;
  std::string injector;   // path of libtidemark.so
  std::string directory;  // where the traces go; created 0700. "": the program is only armed
  std::vector<std::pair<std::string, std::string>> environment;  // TIDEMARK_… for the program
};

struct LaunchResult {
  int exit_code = 0;    // of the program, when it exited
  int signal = 0;       // that ended it, 0 if none
  int start_error = 0;  // errno of exec, when the program could not be started
};

// Where libtidemark.so lies beside this program: the build tree or an installation.
Result<std::string> find_injector();

// An Error when no process could be made for the program.
Result<LaunchResult> launch(const LaunchOptions& options);

}  // namespace tidemark
