// Records a small program from end to end, for `tidemark doctor`.
#pragma once

#include <string>

#include "proto/base/result.h"

namespace tidemark::cli {

// Loads the library into a program of known memory use, which runs on this machine's GPU or on the
// simulated one, and reads the recording back. An Error says which part failed.
Status record_sample(bool simulated);

// Whether the program and the simulated driver are installed.
bool has_sample();

}  // namespace tidemark::cli
