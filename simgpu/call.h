// Runs every exported driver function: callbacks around a body.
//
//   SIMGPU_EXPORT CUresult cuMemFree_v2(CUdeviceptr dptr) {
//     return SIMGPU_CALL(cuMemFree_v2, dptr).run([&](Driver& driver) { return …; });
//   }
//
// A call checks that the driver is ready, gets a correlation id, sends ENTER to the tool, runs the
// body under the driver's lock, sends the events that the body posted (memory, pools, work and
// resources), and then EXIT with the result. No tool code runs under the lock.
#pragma once

#include <type_traits>
#include <utility>

#include "abi/cuda_params.h"
#include "abi/driver_callback_ids.h"
#include "simgpu/driver.h"
#include "simgpu/hooks.h"

namespace tidemark::simgpu {

// Posts an event of the running call, delivered when the lock is released.
void post(const MemoryEvent& event);
void post(const PoolEvent& event);
void post(const WorkEvent& event);
void post(const ResourceEvent& event);

// For events that a tool must get before they happen (…_STARTING): delivered at once. No lock may
// be held.
void tell(const ResourceEvent& event);

uint32_t current_correlation();

// The current context of this thread; nullptr if there is none or it was destroyed.
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

  // For a body that runs without the lock: it waits, or notifies the tool first.
  template <typename Body>
  CUresult run_unlocked(Body&& body) {
    const void* params = std::is_empty_v<Params> ? nullptr : static_cast<const void*>(&params_);
    CallFrame frame(id_, name_, params, symbol_, need_);
    if (frame.admitted() != CUDA_SUCCESS) return frame.admitted();
    return frame.leave(body(Driver::get()));
  }

  // Like run(), for a body that needs a current context.
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

// cuCtxSynchronize takes no parameters, and CUPTI has no struct for it.
struct cuCtxSynchronize_params {};

// Called during initialisation, around the injection library.
void set_loading_injection(bool loading);

// Returned by cuGetExportTable.
const TracingTable& tracing_table();

}  // namespace tidemark::simgpu
