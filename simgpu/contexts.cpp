#include "simgpu/contexts.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "simgpu/call.h"
#include "simgpu/memory.h"

namespace tidemark::simgpu {
namespace {

// The context stack of this thread; the last one is current.
thread_local std::vector<CUcontext> t_contexts;

Context* create_context(Driver& driver, Device& device, CUresult* why) {
  if (!driver.take(device, driver.config.context_bytes)) {
    *why = CUDA_ERROR_OUT_OF_MEMORY;
    return nullptr;
  }
  Context* context = driver.contexts.add({});
  context->id = driver.next_id();
  context->device = device.ordinal;
  context->legacy_stream = {driver.next_id(), context};
  device.card.set_contexts(++device.contexts);
  ResourceEvent event{};
  event.id = cupti::CUPTI_CBID_RESOURCE_CONTEXT_CREATED;
  event.context = reinterpret_cast<CUcontext>(context);
  post(event);
  return context;
}

// Destroys everything in it, as the driver does.
void destroy_context(Driver& driver, Context* context) {
  Device& device = driver.device_of(*context);
  release_context_memory(driver, context);
  driver.modules.erase_if([&](const Module& module) {
    if (module.context == context) device.card.give(module.charged_bytes);
    return module.context == context;
  });
  driver.streams.erase_if([&](const Stream& stream) { return stream.context == context; });
  device.card.give(driver.config.context_bytes + context->tool_bytes);
  device.card.set_contexts(--device.contexts);
  if (device.primary == context) {
    device.primary = nullptr;
    device.primary_users = 0;
  }
  driver.contexts.erase(context);
}

void tell_destruction(CUcontext context) {
  ResourceEvent event{};
  event.id = cupti::CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING;
  event.context = context;
  tell(event);
}

CUresult create_and_push(Driver& driver, CUcontext* out, CUdevice ordinal) {
  Device* device = driver.device(ordinal);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  CUresult why = CUDA_SUCCESS;
  Context* context = create_context(driver, *device, &why);
  if (context == nullptr) return why;
  *out = reinterpret_cast<CUcontext>(context);
  t_contexts.push_back(*out);
  return CUDA_SUCCESS;
}

// Applies `end` to the device; if its primary context has no users left, notifies the tool and
// destroys it.
template <typename End>
CUresult end_primary(Driver& driver, CUdevice ordinal, End end) {
  CUcontext ending = nullptr;
  {
    const std::lock_guard lock(driver.mutex);
    Device* device = driver.device(ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    const CUresult result = end(*device);
    if (result != CUDA_SUCCESS) return result;
    if (device->primary_users == 0) ending = reinterpret_cast<CUcontext>(device->primary);
  }
  if (ending == nullptr) return CUDA_SUCCESS;
  tell_destruction(ending);
  const std::lock_guard lock(driver.mutex);
  if (Context* context = driver.contexts.find(ending)) destroy_context(driver, context);
  return CUDA_SUCCESS;
}

CUresult release_primary(Driver& driver, CUdevice ordinal) {
  return end_primary(driver, ordinal, [](Device& device) {
    if (device.primary_users == 0) return CUDA_ERROR_INVALID_CONTEXT;
    --device.primary_users;
    return CUDA_SUCCESS;
  });
}

CUresult reset_primary(Driver& driver, CUdevice ordinal) {
  return end_primary(driver, ordinal, [](Device& device) {
    device.primary_users = 0;
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUcontext current_handle() {
  return t_contexts.empty() ? nullptr : t_contexts.back();
}

Context* current_context(Driver& driver) {
  return t_contexts.empty() ? nullptr : driver.contexts.find(t_contexts.back());
}

uint32_t context_id(Context* context) {
  return context == nullptr ? cupti::kInvalidContextId : context->id;
}

SIMGPU_EXPORT CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return SIMGPU_CALL(cuCtxCreate_v2, pctx, flags, dev).run([&](Driver& driver) {
    return create_and_push(driver, pctx, dev);
  });
}

SIMGPU_EXPORT CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray,
                                      int numParams, unsigned int flags, CUdevice dev) {
  return SIMGPU_CALL(cuCtxCreate_v3, pctx, paramsArray, numParams, flags, dev)
      .run([&](Driver& driver) { return create_and_push(driver, pctx, dev); });
}

SIMGPU_EXPORT CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams,
                                      unsigned int flags, CUdevice dev) {
  return SIMGPU_CALL(cuCtxCreate_v4, pctx, ctxCreateParams, flags, dev).run([&](Driver& driver) {
    return create_and_push(driver, pctx, dev);
  });
}

SIMGPU_EXPORT CUresult cuCtxDestroy_v2(CUcontext ctx) {
  return SIMGPU_CALL(cuCtxDestroy_v2, ctx).run_unlocked([&](Driver& driver) {
    {
      const std::lock_guard lock(driver.mutex);
      const Context* context = driver.contexts.find(ctx);
      if (context == nullptr || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
    }
    tell_destruction(ctx);
    const std::lock_guard lock(driver.mutex);
    Context* context = driver.contexts.find(ctx);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    destroy_context(driver, context);
    if (!t_contexts.empty() && t_contexts.back() == ctx) t_contexts.pop_back();
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  return SIMGPU_CALL(cuDevicePrimaryCtxRetain, pctx, dev).run([&](Driver& driver) {
    Device* device = driver.device(dev);
    if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    CUresult why = CUDA_SUCCESS;
    if (device->primary == nullptr) {
      device->primary = create_context(driver, *device, &why);
      if (device->primary == nullptr) return why;
      device->primary->primary = true;
    }
    ++device->primary_users;
    *pctx = reinterpret_cast<CUcontext>(device->primary);
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
  return SIMGPU_CALL(cuDevicePrimaryCtxRelease, dev).run_unlocked([&](Driver& driver) {
    return release_primary(driver, dev);
  });
}

SIMGPU_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  return SIMGPU_CALL(cuDevicePrimaryCtxRelease_v2, dev).run_unlocked([&](Driver& driver) {
    return release_primary(driver, dev);
  });
}

SIMGPU_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
  return SIMGPU_CALL(cuDevicePrimaryCtxReset, dev).run_unlocked([&](Driver& driver) {
    return reset_primary(driver, dev);
  });
}

SIMGPU_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  return SIMGPU_CALL(cuDevicePrimaryCtxReset_v2, dev).run_unlocked([&](Driver& driver) {
    return reset_primary(driver, dev);
  });
}

SIMGPU_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  return SIMGPU_CALL(cuDevicePrimaryCtxGetState, dev, flags, active).run([&](Driver& driver) {
    const Device* device = driver.device(dev);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (flags != nullptr) *flags = 0;
    if (active != nullptr) *active = device->primary != nullptr ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

// A green context is simulated as an ordinary context, with the cost of a context.
SIMGPU_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                                        unsigned int flags) {
  return SIMGPU_CALL(cuGreenCtxCreate, phCtx, desc, dev, flags).run([&](Driver& driver) {
    Device* device = driver.device(dev);
    if (phCtx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    CUresult why = CUDA_SUCCESS;
    Context* context = create_context(driver, *device, &why);
    if (context == nullptr) return why;
    *phCtx = reinterpret_cast<CUgreenCtx>(context);
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
  return SIMGPU_CALL(cuGreenCtxDestroy, hCtx).run_unlocked([&](Driver& driver) {
    {
      const std::lock_guard lock(driver.mutex);
      if (driver.contexts.find(hCtx) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    }
    tell_destruction(reinterpret_cast<CUcontext>(hCtx));
    const std::lock_guard lock(driver.mutex);
    if (Context* context = driver.contexts.find(hCtx)) destroy_context(driver, context);
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuCtxSetCurrent(CUcontext ctx) {
  return SIMGPU_CALL(cuCtxSetCurrent, ctx).run([&](Driver& driver) {
    if (ctx != nullptr && driver.contexts.find(ctx) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (!t_contexts.empty()) t_contexts.pop_back();
    if (ctx != nullptr) t_contexts.push_back(ctx);
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuCtxGetCurrent(CUcontext* pctx) {
  return SIMGPU_CALL(cuCtxGetCurrent, pctx).run([&](Driver& driver) {
    if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pctx = reinterpret_cast<CUcontext>(current_context(driver));
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  return SIMGPU_CALL(cuCtxPushCurrent_v2, ctx).run([&](Driver& driver) {
    if (driver.contexts.find(ctx) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    t_contexts.push_back(ctx);
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  return SIMGPU_CALL(cuCtxPopCurrent_v2, pctx).run([&](Driver&) {
    if (t_contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (pctx != nullptr) *pctx = t_contexts.back();
    t_contexts.pop_back();
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  return SIMGPU_CALL(cuCtxGetDevice, device).run_in_context([&](Driver&, Context& context) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = context.device;
    return CUDA_SUCCESS;
  });
}

}  // namespace tidemark::simgpu
