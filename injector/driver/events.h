// The meaning of a driver call: which row of the trace it becomes.
//
// Pure functions of what CUPTI hands to a callback; they read parameters, call nothing, allocate
// nothing. What the parameters do not say (time, thread, stack, context, device of the context) is
// left for the caller to fill in.
//
// Time stamps. An allocation counts from its EXIT and a free from its ENTER, because the driver may
// give a freed address to another thread before the EXIT callback of the free has run: stamped at
// EXIT, the same address would seem to be allocated twice. A free is recorded when it is known to
// have succeeded, with the time of its ENTER. So rows of different threads are not in order of time
// in the file; readers sort.
#pragma once

#include <cstdint>
#include <span>

#include "abi/cuda.h"
#include "proto/rows.h"

namespace tidemark::injector {

// When a call counts, and what is recorded of it.
enum class CallClass : uint8_t {
  kIgnored,
  kTakes,    // memory appears: stamped at EXIT, with the stack, failures too
  kGives,    // memory goes: stamped at ENTER, only when it succeeded
  kChanges,  // neither: stamped at EXIT, only when it succeeded
};

// The driver functions to listen to, by CUPTI's ids: these and no others.
std::span<const uint32_t> watched_driver_calls() noexcept;

struct DriverCall {
  DriverEvent event{};       // without time, thread, context, stack, owner, pool
  uint64_t pool_handle = 0;  // CUmemoryPool, 0: none named
  CallClass call_class = CallClass::kIgnored;
  bool device_known = false;    // the parameters name a device
  bool current_pool = false;    // memory comes from the pool that the device uses at present
  bool sets_pool = false;       // from now on the device uses the pool; no row
  bool begins_capture = false;  // of event.stream; no row
  bool ends_capture = false;
  bool size_missing = false;  // only a query after the call can tell the size
};

// `id` is one of watched_driver_calls(), `params` its <function>_params at EXIT. Out-parameters are
// read only when `result` is success.
DriverCall decode_driver_call(uint32_t id, const void* params, cuda::CUresult result) noexcept;

// Whether the ENTER callback must note the time. Cheap: asked on every ENTER.
bool counts_from_enter(uint32_t id) noexcept;

// Bytes that an array of this description takes, without the driver's padding; 0: it has no memory
// of its own (sparse, deferred) or its format is not known.
uint64_t array_bytes(const cuda::CUDA_ARRAY3D_DESCRIPTOR& description) noexcept;
uint64_t mipmapped_array_bytes(const cuda::CUDA_ARRAY3D_DESCRIPTOR& description,
                               unsigned levels) noexcept;

}  // namespace tidemark::injector
