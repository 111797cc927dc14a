// Which findings say that memory grows for as long as the program runs: what fits then, fits for as
// long as was recorded, and neither a batch nor a setting of the allocator is a cure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "analysis/findings/finding.h"

namespace tidemark {

bool tells_growth(const Finding& finding);

// The first of them on a device of a process; null: there is none.
const Finding* growth_on(std::span<const Finding> findings, int64_t rank, uint64_t pid,
                         std::string_view file, int64_t device);

}  // namespace tidemark
