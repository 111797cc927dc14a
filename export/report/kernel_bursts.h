// How much of the kernels was recorded, in one sentence.
#pragma once

#include <string>

#include "analysis/report/report.h"

namespace tidemark {

// "kernels recorded in bursts: 14 % of the time, to stay below 2 % …"; "nearly all kernels were
// recorded: …"; empty: nothing was left out.
std::string bursts_text(const KernelBursts& bursts);
// Of all ranks together.
std::string bursts_text(const Report& report);

}  // namespace tidemark
