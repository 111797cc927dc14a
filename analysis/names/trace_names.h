// Writes the names of native frames into a finished trace, so that other machines can show them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "proto/base/result.h"

namespace tidemark {

// Returns how many frames of the trace at `path` got a name: their rows are appended again with
// function, file and line, and the index is rewritten. A trace that is damaged, still being
// recorded or locked by another process is left unchanged; a failure restores the previous content.
Result<uint64_t> write_names(const std::string& path,
                             const std::function<void(double)>& advance = {});

}  // namespace tidemark
