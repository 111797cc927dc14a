// What a recording came to, in a few lines on stderr.
#pragma once

#include <string>

namespace tidemark::cli {

// A name for the traces of this moment.
std::string default_directory();

// Of a trace or a directory of traces: what was seen, the highest water, and what to do next.
void print_summary(const std::string& path);

}  // namespace tidemark::cli
