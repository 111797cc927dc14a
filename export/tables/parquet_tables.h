// Writes the tables of a trace as a data set of Parquet files, partitioned by job and rank:
// DIR/job=NAME/rank=3/allocations.parquet. Several jobs share a data set.
#pragma once

#include <string>

#include "export/export_input.h"

namespace tidemark {

struct ParquetOptions {
  std::string job;      // empty: the job's own name, or that of the trace
  bool append = false;  // to a data set that exists
};

// The folder of the job appears only when all its files are complete. A job that the data set
// already has is an error.
Result<ExportSummary> export_parquet(const ExportInput& input, const ExportOptions& options,
                                     const ParquetOptions& parquet, const std::string& directory,
                                     const Progress& progress = {});

}  // namespace tidemark
