// Finds the torch that a command is going to use, and builds its bridge before the launch.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "proto/base/result.h"

namespace tidemark {

// The Python interpreter that the command starts: the program itself, the argument of a launcher
// such as mpirun, or the first line of a script such as torchrun. "" if none is found.
std::string find_interpreter(const std::vector<std::string>& command);

// libc10_cuda.so of the torch that this interpreter would import; "" if there is none.
std::string find_torch_library(const std::string& interpreter);

// Does nothing if the command does not use torch, or if its bridge exists already. Calls `announce`
// with the version of torch before a compiler runs. The injector reports failures.
void prepare_bridge(const std::vector<std::string>& command,
                    const std::function<void(const std::string&)>& announce);

// libc10_cuda.so of the torch in a folder: that of the package, or the one that contains it.
Result<std::string> find_torch_library_in(const std::string& folder);
// Compiles the bridge into the directory, which is created if need be, or into the user's cache if
// it is "". Returns the path of the bridge.
Result<std::string> build_bridge_for_all(const std::string& torch_library,
                                         const std::string& directory);

}  // namespace tidemark
