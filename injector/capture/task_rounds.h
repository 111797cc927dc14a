// The task thread's rounds: what is read, how often, and once more at the end.
#pragma once

#include "injector/process/options.h"

namespace tidemark::injector {

// Registers the tasks with the recorder. `callbacks_on`: driver callbacks tell what is in use.
void start_sampling(const Options& options, bool callbacks_on) noexcept;

}  // namespace tidemark::injector
