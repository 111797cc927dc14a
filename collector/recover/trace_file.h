// One trace or snapshot, with what its process left behind when it was killed.
#pragma once

#include <string>

#include "proto/base/result.h"
#include "proto/read/trace_reader.h"

namespace tidemark {

// Times are raw.
Result<TraceReader> open_trace_file(const std::string& path);

}  // namespace tidemark
