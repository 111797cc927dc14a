// --keep and --seal-above, of the commands that begin a recording (docs/flight-recorder.md).
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "proto/base/result.h"

namespace tidemark::cli {

struct KeepOptions {
  std::vector<std::string> keep;
  std::string seal_above;

  // "10m,512MiB"; empty: everything is kept. The error names the option that is wrong.
  Result<std::string> limits() const;
};

void add_keep(CLI::App& command, KeepOptions& options);

}  // namespace tidemark::cli
