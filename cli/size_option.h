// Sizes as people write them.
#pragma once

#include <cstdint>
#include <string>

#include "proto/base/result.h"

namespace tidemark::cli {

// "40GiB", "512M", "1.5g", "1073741824": units are powers of 1024, whatever their spelling. The
// error names the option.
Result<uint64_t> parse_size(const std::string& option, const std::string& text);

}  // namespace tidemark::cli
