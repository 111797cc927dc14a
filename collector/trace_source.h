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

}  // namespace tidemark
