// Writes a PyTorch memory snapshot that pytorch.org/memory_viz and pickle.load open.
#pragma once

#include "export/export_input.h"

namespace tidemark {

// Exports one process: an Error when the trace has several and options.ranks does not choose one.
// An imported snapshot comes back equal to the original in segments, traces, settings and
// annotations. Categories are those that were recorded; what was inferred is not written.
Result<ExportSummary> export_snapshot(const ExportInput& input, const ExportOptions& options,
                                      const std::string& path, const Progress& progress = {});

}  // namespace tidemark
