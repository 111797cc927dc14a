// How every exported driver function runs: callbacks around a body.
//
//   SIMGPU_EXPORT CUresult cuMemFree_v2(CUdeviceptr dptr) {
//     return SIMGPU_CALL(cuMemFree_v2, dptr).run([&](Driver& driver) { return …; });
//   }
//
// A call checks that the driver is ready, gives itself a correlation id, tells the tool ENTER, runs
// the body under the driver's lock, tells the tool what the body posted (events of memory, pools,
// work and resources), then EXIT with the result. No tool code runs under the lock.
#pragma once

#include <type_traits>
#include <utility>

#include "abi/cuda_params.h"
#include "abi/driver_callback_ids.h"
#include "simgpu/driver.h"
#include "simgpu/hooks.h"

namespace tidemark::simgpu {

// Events of the running call, delivered when the lock is free again.
void post(const MemoryEvent& event);
void post(const PoolEvent& event);
void post(const WorkEvent& event);
void post(const ResourceEvent& event);

// For what a tool must hear before it happens (…_STARTING): delivered at once. Nothing may be
// locked.
void tell(const ResourceEvent& event);

uint32_t current_correlation();

// The current context of this thread; nullptr when there is none or it was destroyed.
Context* current_context(Driver& driver);
uint32_t context_id(Context* context);

enum class Need { kNothing, kInitialised };

class CallFrame {
 public:
  CallFrame(uint32_t id, const char* name, const void* params, const char* symbol, Need need);
  ~CallFrame();
  CallFrame(const CallFrame&) = delete;
  CallFrame& operator=(const CallFrame&) = delete;

  // Success, or why the body must not run.
  CUresult admitted() const { return admitted_; }
  CUresult leave(CUresult result);

 private:
  void tell_tool(bool exit);

  ApiSite site_{};
  CUresult admitted_;
  CUresult result_ = CUDA_SUCCESS;
  uint64_t scratch_ = 0;
  uint32_t outer_correlation_;
  bool entered_ = false;
};

template <typename Params>
class Call {
 public:
  Call(uint32_t id, const char* name, Params params) : id_(id), name_(name), params_(params) {}

  Call& symbol(const char* symbol) {
    symbol_ = symbol;
    return *this;
  }
  Call& needs(Need need) {
    need_ = need;
    return *this;
  }

  // The body holds the driver's lock.
  template <typename Body>
  CUresult run(Body&& body) {
    return run_unlocked([&](Driver& driver) {
      const std::lock_guard lock(driver.mutex);
      return body(driver);
    });
  }

  // The body holds nothing: it waits, or tells the tool something first.
  template <typename Body>
  CUresult run_unlocked(Body&& body) {
    const void* params = std::is_empty_v<Params> ? nullptr : static_cast<const void*>(&params_);
    CallFrame frame(id_, name_, params, symbol_, need_);
    if (frame.admitted() != CUDA_SUCCESS) return frame.admitted();
    return frame.leave(body(Driver::get()));
  }

  // The body needs a current context, too.
  template <typename Body>
  CUresult run_in_context(Body&& body) {
    return run([&](Driver& driver) {
      Context* context = current_context(driver);
      return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : body(driver, *context);
    });
  }

 private:
  uint32_t id_;
  const char* name_;
  Params params_;
  const char* symbol_ = nullptr;
  Need need_ = Need::kInitialised;
};

#define SIMGPU_CALL(NAME, ...) \
  Call<NAME##_params>(cupti::CBID_##NAME, #NAME, NAME##_params{__VA_ARGS__})

// cuCtxSynchronize takes none, and CUPTI has no struct for it.
struct cuCtxSynchronize_params {};

// Called by the initialisation, around the injection library.
void set_loading_injection(bool loading);

// cuGetExportTable's answer.
const TracingTable& tracing_table();

}  // namespace tidemark::simgpu
