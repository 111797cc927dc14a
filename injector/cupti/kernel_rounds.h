// Collects kernels, and turns their recording off and on so that the budget is kept.
//
// What a kernel costs is measured the first time that kernels are dense enough for it to matter
// (launch_cost.h). Stretches without kernels are marks of the trace (MarkKind::kNotRecorded): begun
// before CUPTI is told, ended after it has answered. Task thread.
#pragma once

#include <cstdint>

#include "injector/process/options.h"
#include "injector/recorder/recorder.h"

namespace tidemark::injector {

// `task` calls run_kernel_round(). `late`: the program has been running for a while.
void start_kernel_rounds(const Options& options, bool late, Recorder::Task task) noexcept;
// Returns the milliseconds until the next one.
uint32_t run_kernel_round() noexcept;
// At the end of the recording.
void end_kernel_rounds() noexcept;

}  // namespace tidemark::injector
