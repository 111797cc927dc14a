// Keeps commands from overwriting what they read.
#pragma once

#include <span>
#include <string>

#include "proto/base/result.h"

namespace tidemark {

// An error if `output` is one of `inputs`, or a file that reading a directory among them would use:
// under the same path, another path, a symbolic link or a hard link. Call it before reading.
Status check_output(const std::string& output, std::span<const std::string> inputs);

}  // namespace tidemark
