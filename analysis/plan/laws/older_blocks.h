// Laws of the activations that an earlier pass left behind and whose own place was not recorded.
#pragma once

#include <vector>

#include "analysis/plan/laws/size_law.h"
#include "analysis/plan/program/program.h"

namespace tidemark {

// Blocks of equal size can follow different laws: those from before the history follow what the
// recorded ones of this size do, each law in its share. `known`: rows whose law counts.
void set_laws_of_older(const RecordedProgram& program, const std::vector<bool>& known,
                       SizeLaws& laws);

}  // namespace tidemark
