// PyTorch snapshots as files: read like a trace, or imported into one.
#pragma once

#include <string>

#include "proto/base/result.h"
#include "proto/read/trace_reader.h"

namespace tidemark {

// The snapshot as a trace in memory.
Result<TraceReader> open_snapshot(const std::string& path);

// Imports a snapshot into a file; an existing file is replaced only when the import succeeded.
Status import_snapshot_file(const std::string& snapshot, const std::string& output);

}  // namespace tidemark
