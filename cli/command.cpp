#include "cli/command.h"

#include <cstdio>

namespace tidemark::cli {

int fail(const Error& error) {
  std::fprintf(stderr, "tidemark: %s\n", error.message.c_str());
  return kUsage;
}

void warn(const std::string& text) {
  std::fprintf(stderr, "tidemark: warning: %s\n", text.c_str());
}

Result<TraceSource> open_with_warnings(const std::string& path) {
  Result<TraceSource> source = open_trace(path);
  if (source) {
    for (const std::string& warning : source->warnings) warn(warning);
  }
  return source;
}

}  // namespace tidemark::cli
