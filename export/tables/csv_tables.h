// Writes the tables of a trace as CSV files (RFC 4180, UTF-8, one header line) in a directory.
#pragma once

#include <string>
#include <vector>

#include "export/export_input.h"

namespace tidemark {

// The files that an export may write into its directory.
std::vector<std::string> csv_file_names();

// The files appear only when all of them are complete. The directory is created if missing.
Result<ExportSummary> export_csv(const ExportInput& input, const ExportOptions& options,
                                 const std::string& directory, const Progress& progress = {});

}  // namespace tidemark
