// Writes the names of native frames into a finished trace, so that it can be read elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "proto/base/result.h"

namespace tidemark {

// How many frames of the trace at `path` got a name: their rows are appended again, now with
// function, file and line, and the index is made anew. A trace that is damaged, still being
// recorded or held by somebody else is left alone; after a failure it is what it was.
Result<uint64_t> write_names(const std::string& path,
                             const std::function<void(double)>& advance = {});

}  // namespace tidemark
