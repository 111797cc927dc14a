// How NCCL comes to load libtidemark.so as its profiler plugin.
#pragma once

#include "injector/process/options.h"

namespace tidemark::injector {

// Names this library in NCCL_PROFILER_PLUGIN unless the user has named another there, and says in
// the trace where that leaves NCCL's events. Before NCCL makes its first communicator; it reads the
// variable then. `late`: on a thread of ours, which must not change the host's environment.
void start_nccl(const Options& options, bool late) noexcept;

// The variables alone, in a process that waits to be attached to: NCCL loads this library with its
// first communicator, asks for no events until a recording begins, and costs nothing.
void wire_nccl() noexcept;

}  // namespace tidemark::injector
