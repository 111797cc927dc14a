// What has 16 bits under autocast because its inputs have.
#pragma once

#include <string_view>
#include <vector>

#include "analysis/plan/laws/size_law.h"
#include "analysis/plan/program/program.h"

namespace tidemark {

// Whether autocast runs an operation of this name, or a node of its backward pass, in 32 bits.
bool runs_in_32(std::string_view operation);

// Results of the forward passes of a program that is recorded without autocast, by row.
std::vector<bool> half_results(const RecordedProgram& program, const SizeLaws& laws);

}  // namespace tidemark
