// Opens one trace or snapshot; first recovers what a killed process left in its ring.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/base/result.h"
#include "proto/read/trace_reader.h"

namespace tidemark {

// Whether a file of this name in a directory is read as part of a job.
bool is_input_name(std::string_view name);

// Times are raw. Adds a line to `notes` if the trace may lack what is still in its ring.
Result<TraceReader> open_trace_file(const std::string& path, std::vector<std::string>& notes);

}  // namespace tidemark
