// Whether losses were computed from the forward passes whose graphs stay beyond their step.
#pragma once

#include "analysis/findings/evidence.h"

namespace tidemark {

// False if most of these passes end without a scalar result: then it is no loss that keeps the
// graphs, but the results of the passes, in a list or in the frames of an exception.
bool kept_graphs_have_losses(const DeviceEvidence& d);

}  // namespace tidemark
