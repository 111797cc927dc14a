// Writes a trace for ui.perfetto.dev and Perfetto's trace_processor.
#pragma once

#include "analysis/report/report.h"
#include "export/export_input.h"

namespace tidemark {

// The file appears only when it is complete. If it would exceed options.max_bytes, the allocator's
// curves are thinned (see SampleThinner); an Error if everything else alone is larger than that.
Result<ExportSummary> export_perfetto(const ExportInput& input, const ExportOptions& options,
                                      const std::string& path, const Progress& progress = {});

// The same for any sink; `name` is for error messages.
Result<ExportSummary> write_perfetto(const ExportInput& input, const ExportOptions& options,
                                     class ByteSink& sink, const std::string& name,
                                     const Progress& progress = {});

}  // namespace tidemark
