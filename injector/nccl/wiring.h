// Makes NCCL load libtidemark.so as its profiler plugin.
#pragma once

#include "injector/process/options.h"

namespace tidemark::injector {

// Sets NCCL_PROFILER_PLUGIN to this library unless the user has set it to another one, and records
// in the trace what that means for NCCL's events. Must run before NCCL makes its first
// communicator, which is when it reads the variable. `late`: on one of our threads, which must not
// change the host's environment.
void start_nccl(const Options& options, bool late) noexcept;

// Only the variables, in an armed process: NCCL loads this library with its first communicator,
// enables no events until a recording begins, and costs nothing.
void wire_nccl() noexcept;

}  // namespace tidemark::injector
