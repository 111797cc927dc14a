// The rounds of the task thread: what is sampled, how often, and a last time at the end.
#pragma once

#include "injector/process/options.h"

namespace tidemark::injector {

// Registers the tasks with the recorder. `callbacks_on`: driver callbacks report what is in use.
void start_task_rounds(const Options& options, bool callbacks_on, bool late) noexcept;

}  // namespace tidemark::injector
