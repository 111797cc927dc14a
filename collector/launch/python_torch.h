// Finds the torch that a command is going to use, and makes its bridge ready before the launch.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tidemark {

// The Python interpreter that the command starts: named itself, behind a launcher such as mpirun,
// or in the first line of a script such as torchrun. "" when there is none to be seen.
std::string find_interpreter(const std::vector<std::string>& command);

// libc10_cuda.so of the torch that this interpreter would import; "" when there is none.
std::string find_torch_library(const std::string& interpreter);

// Does nothing when the command uses no torch, or its bridge is there already. `announce` is called
// with torch's version before a compiler runs. A failure is left to the injector to report.
void prepare_bridge(const std::vector<std::string>& command,
                    const std::function<void(const std::string&)>& announce);

}  // namespace tidemark
