// Warns of what a report's recording lacks, for commands that do not print the report.
#pragma once

#include "analysis/report/report.h"

namespace tidemark::cli {

// Without the notes on the files, of which load_with_progress() has warned.
void warn_of_losses(const Report& report);

}  // namespace tidemark::cli
