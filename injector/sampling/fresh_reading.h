// Reads the memory of the card when an allocation fails and when the process holds more of it than
// ever. The task thread does it on request.
#pragma once

#include <cstdint>

#include "injector/sampling/nvml_sampler.h"

namespace tidemark::injector {

// The task that reads the devices. Set before the first allocation can fail.
void read_on_request(void (*task)(void*) noexcept) noexcept;

// Memory of a device, read after this call began if that is possible within milliseconds. Not on
// the task thread, which does the reading.
DeviceMemory fresh_device_memory(int64_t device) noexcept;

// Whether a host thread may wait for the task thread: for a few milliseconds each time, and not
// more than some in a second.
bool may_wait() noexcept;
void waited(int64_t ns) noexcept;

// Has the devices read soon, without waiting for it. Requests that come in before the reading share
// it, and readings on request are milliseconds apart: NVML and the driver share locks.
void ask_for_reading() noexcept;
// The task thread is about to read the devices.
void answer_request() noexcept;

}  // namespace tidemark::injector
