// The run's own numbers of the steps in a kept window.
#pragma once

#include <cstdint>
#include <optional>

#include "analysis/steps/steps.h"

namespace tidemark {

// How many steps of the run ended before the window, which its first step therefore has as its
// number. Nothing if it is not known: the recorder counts marked steps only, and where several
// marks make one step, it must always be the same number of them. 0 if everything was kept.
std::optional<uint64_t> steps_before_window(const ProcessModel& process, const Steps& steps);

}  // namespace tidemark
