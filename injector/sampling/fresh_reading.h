// Reads the memory of the card when an allocation fails. The task thread does it on request.
#pragma once

#include <cstdint>

#include "injector/sampling/nvml_sampler.h"

namespace tidemark::injector {

// The task that reads the devices. Set before the first allocation can fail.
void read_on_request(void (*task)(void*) noexcept) noexcept;

// Memory of a device, read after this call began if that is possible within milliseconds. Not on
// the task thread, which does the reading.
DeviceMemory fresh_device_memory(int64_t device) noexcept;

}  // namespace tidemark::injector
