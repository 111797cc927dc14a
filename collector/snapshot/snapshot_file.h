// Reads a PyTorch snapshot like a trace, or imports it into one.
#pragma once

#include <string>

#include "proto/base/result.h"
#include "proto/read/trace_reader.h"

namespace tidemark {

// Whether to read a file as a snapshot. One may have any name, and a damaged trace may look like
// neither.
bool is_snapshot(const std::string& path);

// The snapshot as a trace in memory.
Result<TraceReader> open_snapshot(const std::string& path);

// Imports a snapshot into a file; replaces an existing file only if the import succeeds.
Status import_snapshot_file(const std::string& snapshot, const std::string& output);

}  // namespace tidemark
