// Opens what the user names: a trace, a directory of traces, or a PyTorch snapshot.
#pragma once

#include <string>
#include <vector>

#include "proto/base/result.h"
#include "proto/read/trace_reader.h"

namespace tidemark {

struct TraceSource {
  std::vector<TraceReader> readers;
  std::vector<std::string> warnings;  // files of a directory that could not be used, and why
  bool incomplete = false;            // a file could not be read, or ranks of the job are missing
  std::vector<std::string> jobs;      // if it has several: the one that is read, then the others
};

// Checks that the ranks of a directory are of one job (others are left out with a warning) and
// aligns their clocks; a merged trace is read with the alignment stored in it.
Result<TraceSource> open_trace(const std::string& path);
// The same for these files, as if they were alone in a directory.
Result<TraceSource> open_traces(std::vector<std::string> files);

}  // namespace tidemark
