// Names native frames: the recorder stores only module and offset.
//
// A name is looked up in the module's file if it has the recorded build id, and in the system's
// debug information file for that build id. Without either the frame stays module+0xoffset.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "analysis/names/dictionary.h"
#include "proto/rows.h"

namespace tidemark {

// Whether the process was recorded on this machine since its last boot. Only then may its trace
// choose which files are opened: the paths in a trace from elsewhere may lead to a network file
// system that is mounted on access.
bool was_recorded_here(const Process& process, const Dictionary& names);

// Names all frames it can and returns their ids. `advance` is called at intervals with the fraction
// done.
std::vector<uint32_t> resolve_frames(Dictionary& names,
                                     const std::function<void(double)>& advance = {});

}  // namespace tidemark
