// A reading of the card at the moment an allocation failed, taken by the task thread on request.
#pragma once

#include <cstdint>

#include "injector/sampling/nvml_sampler.h"

namespace tidemark::injector {

// The task that reads the devices. Set before the first failure can ask for it.
void read_on_request(void (*task)(void*) noexcept) noexcept;

// Free memory of a device, read after the call where that is possible within milliseconds. Not on
// the task thread, which does the reading.
DeviceMemory fresh_device_memory(int64_t device) noexcept;

}  // namespace tidemark::injector
