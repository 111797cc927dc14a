#include "cli/command.h"

#include <cstdio>
#include <filesystem>
#include <vector>

#include "analysis/symbols/trace_names.h"
#include "cli/terminal.h"

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

uint64_t name_traces(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> files;
  if (!fs::exists(path, error)) return 0;
  if (!fs::is_directory(path, error)) files.push_back(path);
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".tmk") files.push_back(it->path().string());
  }
  uint64_t named = 0;
  ProgressBar bar("naming functions");
  for (size_t i = 0; i < files.size(); ++i) {
    const Result<uint64_t> count = write_names(files[i], [&](double share) {
      bar.set((static_cast<double>(i) + share) / static_cast<double>(files.size()));
    });
    if (count) {
      named += *count;
    } else {
      warn(count.error().message);
    }
  }
  return named;
}

}  // namespace tidemark::cli
