// How NCCL comes to load libtidemark.so as its profiler plugin.
#pragma once

#include "injector/options.h"

namespace tidemark::injector {

// Names this library in NCCL_PROFILER_PLUGIN unless the user has named another there, and says in
// the trace where that leaves NCCL's events. Before NCCL makes its first communicator; it reads the
// variable then.
void start_nccl(const Options& options) noexcept;

}  // namespace tidemark::injector
