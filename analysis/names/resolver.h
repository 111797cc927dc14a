// Gives native frames their names: a recorder stores module and offset only.
//
// A name is looked for in the module's file when it has the build id that was recorded, and in the
// file of debugging information that the system keeps for that build id. Where neither is there the
// frame stays module+0xoffset.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "analysis/names/dictionary.h"

namespace tidemark {

// Names what can be named and returns the ids of these frames. `advance` is called now and then
// with the share that is done.
std::vector<uint32_t> resolve_frames(Dictionary& names,
                                     const std::function<void(double)>& advance = {});

}  // namespace tidemark
