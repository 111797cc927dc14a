// Translates a driver call into a row of the trace.
//
// Pure functions of what CUPTI passes to a callback: they read parameters, call nothing and
// allocate nothing. The caller fills in what the parameters do not contain (time, thread, stack,
// context, device of the context).
//
// Time stamps: an allocation is stamped at EXIT and a free at ENTER, because the driver may give a
// freed address to another thread before the EXIT callback of the free has run: stamped at EXIT,
// the same address would seem to be allocated twice. A free is recorded when it has succeeded, with
// the time of its ENTER. So rows of different threads are not in order of time in the file; readers
// sort them.
#pragma once

#include <cstdint>
#include <span>

#include "abi/cuda.h"
#include "proto/rows.h"

namespace tidemark::injector {

// How a call is stamped, and what is recorded of it.
enum class CallClass : uint8_t {
  kIgnored,
  kTakes,    // allocates: stamped at EXIT, with the stack, failures too
  kGives,    // frees: stamped at ENTER, only if it succeeded
  kChanges,  // neither: stamped at EXIT, only if it succeeded
};

// The driver functions to subscribe to, by CUPTI's ids.
std::span<const uint32_t> watched_driver_calls() noexcept;

struct DriverCall {
  DriverEvent event{};       // without time, thread, context, stack, owner, pool
  uint64_t pool_handle = 0;  // CUmemoryPool, 0: none named
  CallClass call_class = CallClass::kIgnored;
  bool device_known = false;    // the parameters name a device
  bool current_pool = false;    // allocates from the current pool of the device
  bool sets_pool = false;       // makes the pool current for the device; no row
  bool begins_capture = false;  // of event.stream; no row
  bool ends_capture = false;
  bool size_missing = false;  // the size is known only from a query after the call
};

// `id` is one of watched_driver_calls(), `params` its <function>_params at EXIT. Out-parameters are
// read only when `result` is success.
DriverCall decode_driver_call(uint32_t id, const void* params, cuda::CUresult result) noexcept;

// The row of a context that is older than the recording; without thread.
DriverEvent older_context(int64_t device, int64_t time_ns) noexcept;

// Whether the ENTER callback must store the time. Cheap: called on every ENTER.
bool counts_from_enter(uint32_t id) noexcept;

// Bytes that an array of this description takes, without the driver's padding; 0: it has no memory
// of its own (sparse, deferred) or an unknown format.
uint64_t array_bytes(const cuda::CUDA_ARRAY3D_DESCRIPTOR& description) noexcept;
uint64_t mipmapped_array_bytes(const cuda::CUDA_ARRAY3D_DESCRIPTOR& description,
                               unsigned levels) noexcept;

}  // namespace tidemark::injector
