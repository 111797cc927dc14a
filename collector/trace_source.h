// Opens whatever a user names: a trace, a directory of traces, or a PyTorch snapshot.
#pragma once

#include <string>
#include <vector>

#include "proto/base/result.h"
#include "proto/read/trace_reader.h"

namespace tidemark {

struct TraceSource {
  std::vector<TraceReader> readers;
  std::vector<std::string> warnings;  // files of a directory that could not be used, and why
};

// Ranks of a directory are checked to be of one job (others are left out, with a warning) and put
// on one clock; a merged trace is read on the clock that it brings.
Result<TraceSource> open_trace(const std::string& path);

// One file, with what its process left behind when it was killed. Times are raw.
Result<TraceReader> open_trace_file(const std::string& path);

// Imports a snapshot into a file; an existing file is replaced only when the import succeeded.
Status import_snapshot_file(const std::string& snapshot, const std::string& output);

}  // namespace tidemark
