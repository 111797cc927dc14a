// The result of a recording, in a few lines on stderr.
#pragma once

#include <string>

namespace tidemark::cli {

// A directory name with the current time, for traces without -o.
std::string default_directory();

// Of a trace or a directory of traces: what was recorded, the highest peak, and what to do next.
void print_summary(const std::string& path);

}  // namespace tidemark::cli
