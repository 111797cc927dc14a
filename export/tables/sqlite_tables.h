// Writes the tables of a trace as an SQLite database.
#pragma once

#include "export/export_input.h"

namespace tidemark {

// The schema is in docs/export.md. The file appears only when it is complete.
Result<ExportSummary> export_sqlite(const ExportInput& input, const ExportOptions& options,
                                    const std::string& path, const Progress& progress = {});

}  // namespace tidemark
