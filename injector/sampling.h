// The task thread's rounds: what is read, how often, and once more at the end.
#pragma once

#include "injector/nvml_sampler.h"
#include "injector/options.h"

namespace tidemark::injector {

// What is free on a device, read after the call where that is possible within milliseconds: for the
// moment in which an allocation failed. Not on the task thread, which does the reading.
DeviceMemory fresh_device_memory(int64_t device) noexcept;

// Registers the tasks with the recorder. `callbacks_on`: driver callbacks tell what is in use.
void start_sampling(const Options& options, bool callbacks_on) noexcept;

}  // namespace tidemark::injector
