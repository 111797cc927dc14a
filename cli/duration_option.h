// Times as people write them.
#pragma once

#include <chrono>
#include <string>

#include "proto/base/result.h"

namespace tidemark::cli {

// 500ms, 60s, 5m, 2h; a bare number is seconds. `option` is named in the error.
Result<std::chrono::milliseconds> parse_duration(const std::string& option,
                                                 const std::string& text);

}  // namespace tidemark::cli
