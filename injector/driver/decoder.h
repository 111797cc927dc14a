// Shared by the decoders of driver calls. Internal to driver/events.h.
#pragma once

#include <cstdint>

#include "abi/cuda_params.h"
#include "abi/driver_callback_ids.h"
#include "injector/driver/events.h"

namespace tidemark::injector {

using namespace cuda;   // NOLINT: this header is for the decoders alone
using namespace cupti;  // NOLINT

template <typename Handle>
uint64_t bits(Handle handle) {
  return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(handle));
}

// Builds the row of one call. The parameters belong to the driver: pointers in them may be null.
class Decoder {
 public:
  Decoder(const void* params, CUresult result) : params_(params), ok_(result == CUDA_SUCCESS) {
    call.event.result = static_cast<uint32_t>(result);
    call.event.device = -1;
  }

  template <typename Params>
  const Params& as() const {
    return *static_cast<const Params*>(params_);
  }

  // An out-parameter: 0 when the call failed.
  template <typename T>
  uint64_t out(T* where) const {
    return ok_ && where != nullptr ? static_cast<uint64_t>(*where) : 0;
  }
  template <typename T>
  uint64_t out(T** where) const {
    return ok_ && where != nullptr ? bits(*where) : 0;
  }

  void takes(MemoryKind kind, uint64_t address, uint64_t size) {
    set(CallClass::kTakes, DriverOperation::kAllocate, kind);
    call.event.address = address;
    call.event.size_bytes = size;
  }

  void gives(MemoryKind kind, uint64_t address) {
    set(CallClass::kGives, DriverOperation::kFree, kind);
    call.event.address = address;
  }

  void set(CallClass call_class, DriverOperation operation, MemoryKind kind) {
    call.call_class = call_class;
    call.event.operation = operation;
    call.event.kind = kind;
  }

  void located(const CUmemLocation& location) {
    call.device_known = true;
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
      call.event.device = location.id;
    } else {
      call.event.flags |= kDriverHostLocated;
    }
  }

  DriverCall call;

 private:
  const void* params_;
  bool ok_;
};

// One per family of calls; `id` is one of the family.
void decode_device_memory(uint32_t id, Decoder& d) noexcept;
void decode_host_memory(uint32_t id, Decoder& d) noexcept;
void decode_stream_ordered(uint32_t id, Decoder& d) noexcept;
void decode_pools(uint32_t id, Decoder& d) noexcept;
void decode_virtual_handles(uint32_t id, Decoder& d) noexcept;
void decode_multicast(uint32_t id, Decoder& d) noexcept;
void decode_virtual_addresses(uint32_t id, Decoder& d) noexcept;
void decode_shared_memory(uint32_t id, Decoder& d) noexcept;
void decode_arrays(uint32_t id, Decoder& d) noexcept;
void decode_graphs(uint32_t id, Decoder& d) noexcept;

}  // namespace tidemark::injector
