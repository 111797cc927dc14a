// Streams, and waiting for them.
#include <algorithm>
#include <ctime>

#include "simgpu/call.h"
#include "simgpu/contexts.h"

namespace tidemark::simgpu {
namespace {

// The per-thread default streams of this thread, by context id (ids are never reused).
thread_local std::unordered_map<uint32_t, Stream*> t_streams;

Stream* add_stream(Driver& driver, Context& context) {
  return driver.streams.add({driver.next_id(), &context});
}

CUresult create_stream(Driver& driver, Context& context, CUstream* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUstream>(add_stream(driver, context));
  ResourceEvent event{};
  event.id = cupti::CUPTI_CBID_RESOURCE_STREAM_CREATED;
  event.context = reinterpret_cast<CUcontext>(&context);
  event.stream = *out;
  post(event);
  return CUDA_SUCCESS;
}

void sleep_until(int64_t time_ns) {
  const timespec time{time_ns / 1'000'000'000, time_ns % 1'000'000'000};
  while (now_ns() < time_ns) clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &time, nullptr);
}

// Waits until the time that `until` returns under the lock; then pools release what they need not
// keep.
template <typename Until>
CUresult wait(Driver& driver, Until until) {
  int64_t end_ns = 0;
  int device = 0;
  {
    const std::lock_guard lock(driver.mutex);
    Context* context = current_context(driver);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    device = context->device;
    const CUresult result = until(*context, &end_ns);
    if (result != CUDA_SUCCESS) return result;
  }
  sleep_until(end_ns);
  const std::lock_guard lock(driver.mutex);
  trim_to_thresholds(driver, device);
  return CUDA_SUCCESS;
}

CUresult wait_for_stream(Driver& driver, CUstream handle, bool per_thread) {
  return wait(driver, [&](Context& context, int64_t* end_ns) {
    const Stream* stream = stream_of(driver, context, handle, per_thread);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    *end_ns = stream->busy_until_ns;
    return CUDA_SUCCESS;
  });
}

CUresult query_stream(Driver& driver, Context& context, CUstream handle, bool per_thread) {
  const Stream* stream = stream_of(driver, context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return stream->busy_until_ns > now_ns() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

}  // namespace

Stream* stream_of(Driver& driver, Context& context, CUstream handle, bool per_thread) {
  if (handle == kStreamLegacy || (handle == nullptr && !per_thread)) return &context.legacy_stream;
  if (handle == kStreamPerThread || handle == nullptr) {
    Stream*& own = t_streams[context.id];
    if (own == nullptr) own = add_stream(driver, context);
    return own;
  }
  return driver.streams.find(handle);
}

Span schedule(Stream& stream, int64_t duration_ns) {
  const int64_t start_ns = std::max(now_ns(), stream.busy_until_ns);
  stream.busy_until_ns = start_ns + duration_ns;
  return {start_ns, stream.busy_until_ns};
}

SIMGPU_EXPORT CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return SIMGPU_CALL(cuStreamCreate, phStream, Flags)
      .run_in_context([&](Driver& driver, Context& context) {
        return create_stream(driver, context, phStream);
      });
}

SIMGPU_EXPORT CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags,
                                                  int priority) {
  return SIMGPU_CALL(cuStreamCreateWithPriority, phStream, flags, priority)
      .run_in_context([&](Driver& driver, Context& context) {
        return create_stream(driver, context, phStream);
      });
}

SIMGPU_EXPORT CUresult cuStreamDestroy_v2(CUstream hStream) {
  return SIMGPU_CALL(cuStreamDestroy_v2, hStream).run_unlocked([&](Driver& driver) {
    ResourceEvent event{};
    {
      const std::lock_guard lock(driver.mutex);
      const Stream* stream = driver.streams.find(hStream);
      if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
      event.context = reinterpret_cast<CUcontext>(stream->context);
    }
    event.id = cupti::CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING;
    event.stream = hStream;
    tell(event);
    const std::lock_guard lock(driver.mutex);
    driver.streams.erase(hStream);
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult cuStreamSynchronize(CUstream hStream) {
  return SIMGPU_CALL(cuStreamSynchronize, hStream).run_unlocked([&](Driver& driver) {
    return wait_for_stream(driver, hStream, false);
  });
}

SIMGPU_EXPORT CUresult cuStreamSynchronize_ptsz(CUstream hStream) {
  return SIMGPU_CALL(cuStreamSynchronize_ptsz, hStream).run_unlocked([&](Driver& driver) {
    return wait_for_stream(driver, hStream, true);
  });
}

SIMGPU_EXPORT CUresult cuStreamQuery(CUstream hStream) {
  return SIMGPU_CALL(cuStreamQuery, hStream).run_in_context([&](Driver& driver, Context& context) {
    return query_stream(driver, context, hStream, false);
  });
}

SIMGPU_EXPORT CUresult cuStreamQuery_ptsz(CUstream hStream) {
  return SIMGPU_CALL(cuStreamQuery_ptsz, hStream)
      .run_in_context([&](Driver& driver, Context& context) {
        return query_stream(driver, context, hStream, true);
      });
}

SIMGPU_EXPORT CUresult cuCtxSynchronize() {
  return SIMGPU_CALL(cuCtxSynchronize).run_unlocked([&](Driver& driver) {
    return wait(driver, [&](Context& context, int64_t* end_ns) {
      *end_ns = context.legacy_stream.busy_until_ns;
      driver.streams.each([&](const Stream& stream) {
        if (stream.context == &context) *end_ns = std::max(*end_ns, stream.busy_until_ns);
      });
      return CUDA_SUCCESS;
    });
  });
}

}  // namespace tidemark::simgpu
