// Opens one trace or snapshot; first recovers what a killed process left in its ring.
#pragma once

#include <string>

#include "proto/base/result.h"
#include "proto/read/trace_reader.h"

namespace tidemark {

// Times are raw.
Result<TraceReader> open_trace_file(const std::string& path);

}  // namespace tidemark
