// Launches, copies and fills. Device memory has nothing behind it, so a kernel computes nothing,
// data copied to a device is lost, and data copied from it is zeros. Host, pinned and managed
// memory is really copied and filled.
#include "simgpu/work.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "simgpu/call.h"
#include "simgpu/graphs.h"
#include "simgpu/memory.h"

namespace tidemark::simgpu {
namespace {

// A function's name, for the callback of its launch.
const char* symbol_of(CUfunction handle) {
  Driver& driver = Driver::get();
  const std::lock_guard lock(driver.mutex);
  const Function* function = find_function(driver, handle);
  return function == nullptr ? nullptr : function->name;
}

CUresult launch(Driver& driver, Context& context, CUfunction handle, const CUlaunchConfig& c,
                bool per_thread) {
  const Function* function = find_function(driver, handle);
  Stream* stream = stream_of(driver, context, c.hStream, per_thread);
  if (function == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  constexpr uint64_t kMaxThreads = 1024;
  const uint64_t threads = uint64_t{c.blockDimX} * c.blockDimY * c.blockDimZ;
  const bool grid = c.gridDimX != 0 && c.gridDimY != 0 && c.gridDimZ != 0;
  if (!grid || threads == 0 || threads > kMaxThreads) return CUDA_ERROR_INVALID_VALUE;
  const Launch what{function->name,
                    {c.gridDimX, c.gridDimY, c.gridDimZ},
                    {c.blockDimX, c.blockDimY, c.blockDimZ},
                    c.sharedMemBytes};
  if (stream->capture != nullptr) {
    add_kernel_node(driver, *stream->capture, what);
  } else {
    run_kernel(driver, context, *stream, what);
  }
  return CUDA_SUCCESS;
}

struct Copy {
  cupti::CUpti_ActivityMemcpyKind kind;
  uint64_t target;
  uint64_t source;
  uint64_t bytes;
};

cupti::CUpti_ActivityMemoryKind kind_at(Driver& driver, uint64_t address, bool device) {
  const auto it = driver.find_range(address);
  if (it != driver.allocations.end()) return memory_event(true, it->second).kind;
  return device ? cupti::CUPTI_ACTIVITY_MEMORY_KIND_DEVICE
                : cupti::CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
}

void move_bytes(Driver& driver, const Copy& copy) {
  const bool to_host = copy.kind == cupti::CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ||
                       host_backed(driver, copy.target, copy.bytes);
  const bool from_host = copy.kind == cupti::CUPTI_ACTIVITY_MEMCPY_KIND_HTOD ||
                         host_backed(driver, copy.source, copy.bytes);
  if (!to_host) return;
  if (from_host) {
    std::memmove(reinterpret_cast<void*>(copy.target), reinterpret_cast<void*>(copy.source),
                 copy.bytes);
  } else {
    std::memset(reinterpret_cast<void*>(copy.target), 0, copy.bytes);
  }
}

CUresult run_copy(Driver& driver, Context& context, const Copy& copy, CUstream handle, bool async,
                  bool per_thread) {
  Stream* stream = stream_of(driver, context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (copy.bytes == 0) return CUDA_SUCCESS;
  if (copy.target == 0 || copy.source == 0) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture != nullptr) {
    add_plain_node(driver, *stream->capture, CU_GRAPH_NODE_TYPE_MEMCPY, copy.bytes)->copy_kind =
        copy.kind;
    return CUDA_SUCCESS;
  }
  move_bytes(driver, copy);
  WorkEvent event =
      work_event(context, *stream, cupti::CUPTI_ACTIVITY_KIND_MEMCPY, copy_duration_ns(copy.bytes));
  event.bytes = copy.bytes;
  event.copy_kind = copy.kind;
  event.source_kind =
      kind_at(driver, copy.source, copy.kind != cupti::CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
  event.target_kind =
      kind_at(driver, copy.target, copy.kind != cupti::CUPTI_ACTIVITY_MEMCPY_KIND_DTOH);
  event.async = async;
  post(event);
  return CUDA_SUCCESS;
}

template <typename Value>
CUresult run_fill(Driver& driver, Context& context, CUdeviceptr target, Value value, uint64_t count,
                  CUstream handle, bool async, bool per_thread) {
  const uint64_t bytes = count * sizeof(Value);
  Stream* stream = stream_of(driver, context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (bytes == 0) return CUDA_SUCCESS;
  if (target == 0) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture != nullptr) {
    add_plain_node(driver, *stream->capture, CU_GRAPH_NODE_TYPE_MEMSET, bytes);
    return CUDA_SUCCESS;
  }
  if (host_backed(driver, target, bytes)) {
    std::fill_n(reinterpret_cast<Value*>(target), count, value);
  }
  WorkEvent event =
      work_event(context, *stream, cupti::CUPTI_ACTIVITY_KIND_MEMSET, copy_duration_ns(bytes));
  event.bytes = bytes;
  event.value = value;
  event.target_kind = kind_at(driver, target, true);
  event.async = async;
  post(event);
  return CUDA_SUCCESS;
}

uint64_t number(const void* p) {
  return reinterpret_cast<uint64_t>(p);
}

constexpr auto kToDevice = cupti::CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
constexpr auto kToHost = cupti::CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
constexpr auto kOnDevice = cupti::CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;

}  // namespace

// The `_<N>us` at the end of a name, or else the configured duration.
int64_t kernel_duration_ns(const Config& config, const char* name) {
  std::string_view rest = name;
  if (!rest.ends_with("us")) return config.kernel_ns;
  rest.remove_suffix(2);
  const size_t underscore = rest.rfind('_');
  if (underscore == std::string_view::npos) return config.kernel_ns;
  const std::string digits(rest.substr(underscore + 1));
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) {
    return config.kernel_ns;
  }
  return std::strtoll(digits.c_str(), nullptr, 10) * 1000;
}

// Two microseconds of latency, then 25 bytes per nanosecond.
int64_t copy_duration_ns(uint64_t bytes) {
  return 2000 + static_cast<int64_t>(bytes / 25);
}

WorkEvent work_event(Context& context, Stream& stream, cupti::CUpti_ActivityKind kind,
                     int64_t duration_ns) {
  const Span span = schedule(stream, duration_ns);
  WorkEvent event{};
  event.kind = kind;
  event.start_ns = span.start_ns;
  event.end_ns = span.end_ns;
  event.device = static_cast<uint32_t>(context.device);
  event.context_id = context.id;
  event.stream_id = stream.id;
  event.correlation = current_correlation();
  return event;
}

void run_kernel(Driver& driver, Context& context, Stream& stream, const Launch& launch,
                uint32_t graph_id, uint64_t graph_node_id) {
  WorkEvent event = work_event(context, stream, cupti::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                               kernel_duration_ns(driver.config, launch.name));
  event.name = launch.name;
  std::copy_n(launch.grid, 3, event.grid);
  std::copy_n(launch.block, 3, event.block);
  event.shared_bytes = launch.shared_bytes;
  event.graph_id = graph_id;
  event.graph_node_id = graph_node_id;
  post(event);
}

#define SIMGPU_LAUNCH(NAME, PER_THREAD)                                                          \
  SIMGPU_EXPORT CUresult NAME(                                                                   \
      CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,         \
      unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,                    \
      unsigned int sharedMemBytes, CUstream hStream, void** kernelParams, void** extra) {        \
    return SIMGPU_CALL(NAME, f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,   \
                       sharedMemBytes, hStream, kernelParams, extra)                             \
        .symbol(symbol_of(f))                                                                    \
        .run_in_context([&](Driver& driver, Context& context) {                                  \
          const CUlaunchConfig config{gridDimX,  gridDimY,       gridDimZ, blockDimX, blockDimY, \
                                      blockDimZ, sharedMemBytes, hStream,  nullptr,   0};        \
          return launch(driver, context, f, config, PER_THREAD);                                 \
        });                                                                                      \
  }

SIMGPU_LAUNCH(cuLaunchKernel, false)
SIMGPU_LAUNCH(cuLaunchKernel_ptsz, true)

#define SIMGPU_LAUNCH_COOPERATIVE(NAME, PER_THREAD)                                              \
  SIMGPU_EXPORT CUresult NAME(                                                                   \
      CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,         \
      unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,                    \
      unsigned int sharedMemBytes, CUstream hStream, void** kernelParams) {                      \
    return SIMGPU_CALL(NAME, f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,   \
                       sharedMemBytes, hStream, kernelParams)                                    \
        .symbol(symbol_of(f))                                                                    \
        .run_in_context([&](Driver& driver, Context& context) {                                  \
          const CUlaunchConfig config{gridDimX,  gridDimY,       gridDimZ, blockDimX, blockDimY, \
                                      blockDimZ, sharedMemBytes, hStream,  nullptr,   0};        \
          return launch(driver, context, f, config, PER_THREAD);                                 \
        });                                                                                      \
  }

SIMGPU_LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, false)
SIMGPU_LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)

#define SIMGPU_LAUNCH_EX(NAME, PER_THREAD)                                                     \
  SIMGPU_EXPORT CUresult NAME(const CUlaunchConfig* config, CUfunction f, void** kernelParams, \
                              void** extra) {                                                  \
    return SIMGPU_CALL(NAME, config, f, kernelParams, extra)                                   \
        .symbol(symbol_of(f))                                                                  \
        .run_in_context([&](Driver& driver, Context& context) {                                \
          return config == nullptr ? CUDA_ERROR_INVALID_VALUE                                  \
                                   : launch(driver, context, f, *config, PER_THREAD);          \
        });                                                                                    \
  }

SIMGPU_LAUNCH_EX(cuLaunchKernelEx, false)
SIMGPU_LAUNCH_EX(cuLaunchKernelEx_ptsz, true)

// Copies without a stream run on the default one. KIND, and how its arguments become numbers.
#define SIMGPU_COPY(NAME, TARGET, SOURCE, KIND, TO, FROM, PER_THREAD)                        \
  SIMGPU_EXPORT CUresult NAME(TARGET target, SOURCE source, size_t bytes) {                  \
    return SIMGPU_CALL(NAME, target, source, bytes)                                          \
        .run_in_context([&](Driver& driver, Context& context) {                              \
          return run_copy(driver, context, {KIND, TO(target), FROM(source), bytes}, nullptr, \
                          false, PER_THREAD);                                                \
        });                                                                                  \
  }
#define SIMGPU_COPY_ASYNC(NAME, TARGET, SOURCE, KIND, TO, FROM, PER_THREAD)                       \
  SIMGPU_EXPORT CUresult NAME(TARGET target, SOURCE source, size_t bytes, CUstream stream) {      \
    return SIMGPU_CALL(NAME, target, source, bytes, stream)                                       \
        .run_in_context([&](Driver& driver, Context& context) {                                   \
          return run_copy(driver, context, {KIND, TO(target), FROM(source), bytes}, stream, true, \
                          PER_THREAD);                                                            \
        });                                                                                       \
  }
#define SIMGPU_SAME

SIMGPU_COPY(cuMemcpyHtoD_v2, CUdeviceptr, const void*, kToDevice, SIMGPU_SAME, number, false)
SIMGPU_COPY(cuMemcpyHtoD_v2_ptds, CUdeviceptr, const void*, kToDevice, SIMGPU_SAME, number, true)
SIMGPU_COPY(cuMemcpyDtoH_v2, void*, CUdeviceptr, kToHost, number, SIMGPU_SAME, false)
SIMGPU_COPY(cuMemcpyDtoH_v2_ptds, void*, CUdeviceptr, kToHost, number, SIMGPU_SAME, true)
SIMGPU_COPY(cuMemcpyDtoD_v2, CUdeviceptr, CUdeviceptr, kOnDevice, SIMGPU_SAME, SIMGPU_SAME, false)
SIMGPU_COPY(cuMemcpyDtoD_v2_ptds, CUdeviceptr, CUdeviceptr, kOnDevice, SIMGPU_SAME, SIMGPU_SAME,
            true)
SIMGPU_COPY_ASYNC(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void*, kToDevice, SIMGPU_SAME, number,
                  false)
SIMGPU_COPY_ASYNC(cuMemcpyHtoDAsync_v2_ptsz, CUdeviceptr, const void*, kToDevice, SIMGPU_SAME,
                  number, true)
SIMGPU_COPY_ASYNC(cuMemcpyDtoHAsync_v2, void*, CUdeviceptr, kToHost, number, SIMGPU_SAME, false)
SIMGPU_COPY_ASYNC(cuMemcpyDtoHAsync_v2_ptsz, void*, CUdeviceptr, kToHost, number, SIMGPU_SAME, true)
SIMGPU_COPY_ASYNC(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr, kOnDevice, SIMGPU_SAME,
                  SIMGPU_SAME, false)
SIMGPU_COPY_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, CUdeviceptr, CUdeviceptr, kOnDevice, SIMGPU_SAME,
                  SIMGPU_SAME, true)

#define SIMGPU_FILL(NAME, PER_THREAD)                                                     \
  SIMGPU_EXPORT CUresult NAME(CUdeviceptr dstDevice, unsigned char uc, size_t N) {        \
    return SIMGPU_CALL(NAME, dstDevice, uc, N)                                            \
        .run_in_context([&](Driver& driver, Context& context) {                           \
          return run_fill(driver, context, dstDevice, uc, N, nullptr, false, PER_THREAD); \
        });                                                                               \
  }
#define SIMGPU_FILL_ASYNC(NAME, VALUE, PER_THREAD)                                              \
  SIMGPU_EXPORT CUresult NAME(CUdeviceptr dstDevice, VALUE value, size_t N, CUstream hStream) { \
    return SIMGPU_CALL(NAME, dstDevice, value, N, hStream)                                      \
        .run_in_context([&](Driver& driver, Context& context) {                                 \
          return run_fill(driver, context, dstDevice, value, N, hStream, true, PER_THREAD);     \
        });                                                                                     \
  }

SIMGPU_FILL(cuMemsetD8_v2, false)
SIMGPU_FILL(cuMemsetD8_v2_ptds, true)
SIMGPU_FILL_ASYNC(cuMemsetD8Async, unsigned char, false)
SIMGPU_FILL_ASYNC(cuMemsetD8Async_ptsz, unsigned char, true)
SIMGPU_FILL_ASYNC(cuMemsetD32Async, unsigned int, false)
SIMGPU_FILL_ASYNC(cuMemsetD32Async_ptsz, unsigned int, true)

// No work that CUPTI reports.
#define SIMGPU_WRITE_VALUE(NAME)                                                                   \
  SIMGPU_EXPORT CUresult NAME(CUstream stream, CUdeviceptr addr, uint32_t value,                   \
                              unsigned int flags) {                                                \
    return SIMGPU_CALL(NAME, stream, addr, value, flags)                                           \
        .run_in_context([&](Driver& driver, Context& context) {                                    \
          if (stream_of(driver, context, stream, false) == nullptr)                                \
            return CUDA_ERROR_INVALID_HANDLE;                                                      \
          if (addr == 0 || addr % sizeof value != 0) return CUDA_ERROR_INVALID_VALUE;              \
          if (host_backed(driver, addr, sizeof value)) *reinterpret_cast<uint32_t*>(addr) = value; \
          return CUDA_SUCCESS;                                                                     \
        });                                                                                        \
  }

SIMGPU_WRITE_VALUE(cuStreamWriteValue32)
SIMGPU_WRITE_VALUE(cuStreamWriteValue32_v2)

}  // namespace tidemark::simgpu
