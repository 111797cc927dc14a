// Writes a PyTorch memory snapshot that pytorch.org/memory_viz and pickle.load open.
#pragma once

#include "export/export_input.h"

namespace tidemark {

// One process: an error when the trace has several and options.ranks does not choose one. Of an
// imported snapshot the result equals the original in segments, traces, settings and annotations.
Result<ExportSummary> export_snapshot(const ExportInput& input, const ExportOptions& options,
                                      const std::string& path, const Progress& progress = {});

}  // namespace tidemark
