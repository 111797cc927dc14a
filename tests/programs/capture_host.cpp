// A CUDA program that runs one task, for tests that read back what was recorded.
// Usage: capture_host TASK [NUMBER]
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "abi/cupti.h"
#include "samples/cuda/driver.h"
#include "tests/support/forked_leaks.h"

namespace tidemark::samples {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

void begin(const Driver& cu) {
  cu.check(cu.cuInit(0), "cuInit");
  cu.use_device(0);
}

void failures(int) {
  const Driver cu;
  begin(cu);
  CUdeviceptr p = 0;
  std::printf("alloc %d\n", cu.cuMemAlloc_v2(&p, size_t{1} << 45));
  std::printf("async %d\n", cu.cuMemAllocAsync(&p, size_t{1} << 44, nullptr));
  std::printf("free %d\n", cu.cuMemFree_v2(0x1234560));
}

// Threads that allocate and free, so that addresses move between them.
void threads(int count) {
  const Driver cu;
  begin(cu);
  CUcontext context = cu.use_device(0);
  std::vector<std::thread> all;
  for (int t = 0; t < count; ++t) {
    all.emplace_back([&cu, context] {
      cu.check(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
      for (int i = 0; i < 100; ++i) {
        CUdeviceptr p = 0;
        cu.check(cu.cuMemAlloc_v2(&p, 64 << 10), "cuMemAlloc");
        cu.check(cu.cuMemFree_v2(p), "cuMemFree");
      }
    });
  }
  for (std::thread& thread : all) thread.join();
}

void kernels(int count) {
  const Driver cu;
  begin(cu);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  cu.check(cu.cuModuleLoadData(&module, kIdlePtx), "cuModuleLoadData");
  cu.check(cu.cuModuleGetFunction(&function, module, "idle"), "cuModuleGetFunction");
  CUdeviceptr p = 0;
  cu.check(cu.cuMemAlloc_v2(&p, kMiB), "cuMemAlloc");
  for (int i = 0; i < count; ++i) {
    cu.check(cu.cuLaunchKernel(function, 3, 2, 1, 64, 1, 1, 0, nullptr, nullptr, nullptr),
             "launch");
  }
  cu.check(cu.cuMemsetD8_v2(p, 1, kMiB), "cuMemsetD8");
  cu.check(cu.cuCtxSynchronize(), "cuCtxSynchronize");
}

// Holds memory long enough to be sampled.
void hold(int milliseconds) {
  const Driver cu;
  begin(cu);
  CUdeviceptr p = 0;
  CUdeviceptr q = 0;
  cu.check(cu.cuMemAlloc_v2(&p, 64 * kMiB), "cuMemAlloc");
  cu.check(cu.cuMemAllocAsync(&q, 3 * kMiB, nullptr), "cuMemAllocAsync");
  usleep(static_cast<useconds_t>(milliseconds) * 1000);
}

// Peaks that grow from one to the next, and last for some milliseconds each.
void peaks(int milliseconds) {
  const Driver cu;
  begin(cu);
  for (size_t i = 1; i <= 5; ++i) {
    CUdeviceptr p = 0;
    cu.check(cu.cuMemAlloc_v2(&p, i * 64 * kMiB), "cuMemAlloc");
    usleep(static_cast<useconds_t>(milliseconds) * 1000);
    cu.check(cu.cuMemFree_v2(p), "cuMemFree");
    // As high as before: no reading.
    cu.check(cu.cuMemAlloc_v2(&p, i * 64 * kMiB), "cuMemAlloc");
    cu.check(cu.cuMemFree_v2(p), "cuMemFree");
  }
}

// Memory on several devices, each with its own context.
void devices(int count) {
  const Driver cu;
  begin(cu);
  for (int device = 0; device < count; ++device) {
    cu.use_device(device);
    CUdeviceptr p = 0;
    cu.check(cu.cuMemAlloc_v2(&p, kMiB), "cuMemAlloc");
  }
  usleep(150 * 1000);
}

// Nearly fills the card, then requests more.
void fill(int mebibytes) {
  const Driver cu;
  begin(cu);
  CUdeviceptr p = 0;
  cu.check(cu.cuMemAlloc_v2(&p, static_cast<size_t>(mebibytes) * kMiB), "cuMemAlloc");
  std::printf("alloc %d\n", cu.cuMemAlloc_v2(&p, static_cast<size_t>(mebibytes) * kMiB));
}

// A child without CUDA, a child that runs another CUDA program, and the parent continues.
void forks(int) {
  const Driver cu;
  begin(cu);
  CUdeviceptr p = 0;
  cu.check(cu.cuMemAlloc_v2(&p, kMiB), "cuMemAlloc");
  if (const pid_t idle = fork(); idle == 0) {
    std::exit(0);  // runs the exit handlers, including ours
  } else {
    waitpid(idle, nullptr, 0);
  }
  if (const pid_t other = fork(); other == 0) {
    execl("/proc/self/exe", "capture_host", "hold", "10", nullptr);
    _exit(1);
  } else {
    waitpid(other, nullptr, 0);
  }
  cu.check(cu.cuMemAlloc_v2(&p, 2 * kMiB), "cuMemAlloc");
}

// Two processes that use CUDA only after the fork.
void fork_first(int) {
  const pid_t child = fork();
  hold(10);
  if (child != 0) waitpid(child, nullptr, 0);
}

// Whether CUPTI is available, as a profiler of the user would find it.
void subscribe(int) {
  const Driver cu;
  begin(cu);
  void* library = dlopen("libcupti.so.13", RTLD_NOW);
  if (library == nullptr) fail("libcupti.so.13", dlerror());
  const auto function =
      reinterpret_cast<cupti::cuptiSubscribe_fn>(dlsym(library, "cuptiSubscribe"));
  cupti::CUpti_SubscriberHandle handle = nullptr;
  const auto nothing = [](void*, cupti::CUpti_CallbackDomain, uint32_t, const void*) {};
  std::printf("subscribe %u\n", static_cast<unsigned>(function(&handle, nothing, nullptr)));
}

// Many threads call the library at once, and again later.
void again(int count) {
  void* library = dlopen(std::getenv("CUDA_INJECTION64_PATH"), RTLD_NOW);
  if (library == nullptr) fail("injection", dlerror());
  const auto entry = reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
  std::atomic<int> sum{0};
  std::vector<std::thread> all;
  for (int i = 0; i < count; ++i) all.emplace_back([&] { sum += entry(); });
  for (std::thread& thread : all) thread.join();
  hold(10);
  std::printf("returned %d\n", sum.load() + entry());
}

// Memory of another process, held long enough for its size to be queried. The child gets the handle
// as text.
void open_ipc(int milliseconds) {
  const Driver cu;
  begin(cu);
  CUipcMemHandle handle{};
  const std::string text = std::getenv("CAPTURE_IPC_HANDLE");
  for (size_t i = 0; i < sizeof handle.reserved; ++i) {
    handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  CUdeviceptr p = 0;
  cu.check(cu.cuIpcOpenMemHandle_v2(&p, handle, 1), "cuIpcOpenMemHandle");
  usleep(static_cast<useconds_t>(milliseconds) * 1000);
  cu.check(cu.cuIpcCloseMemHandle(p), "cuIpcCloseMemHandle");
}

void ipc(int milliseconds) {
  const Driver cu;
  begin(cu);
  CUdeviceptr p = 0;
  CUipcMemHandle handle{};
  cu.check(cu.cuMemAlloc_v2(&p, 6 * kMiB), "cuMemAlloc");
  cu.check(cu.cuIpcGetMemHandle(&handle, p), "cuIpcGetMemHandle");
  std::string text;
  for (const char byte : handle.reserved) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    text += digits;
  }
  setenv("CAPTURE_IPC_HANDLE", text.c_str(), 1);
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "capture_host", "open_ipc", std::to_string(milliseconds).c_str(),
          nullptr);
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) fail("child", "could not open the memory");
}

// cuMemAllocAsync on a stream that is being captured.
void captured(int) {
  const Driver cu;
  begin(cu);
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  const auto begin_capture =
      reinterpret_cast<cuStreamBeginCapture_v2_fn>(dlsym(library, "cuStreamBeginCapture_v2"));
  const auto end_capture =
      reinterpret_cast<cuStreamEndCapture_fn>(dlsym(library, "cuStreamEndCapture"));
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUdeviceptr p = 0;
  CUdeviceptr q = 0;
  cu.check(cu.cuStreamCreate(&stream, 1), "cuStreamCreate");
  cu.check(begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
  cu.check(cu.cuMemAllocAsync(&p, 3 * kMiB, stream), "cuMemAllocAsync");
  cu.check(cu.cuMemFreeAsync(p, stream), "cuMemFreeAsync");
  cu.check(end_capture(stream, &graph), "cuStreamEndCapture");
  cu.check(cu.cuMemAllocAsync(&q, 5 * kMiB, stream), "cuMemAllocAsync");
}

void pools(int) {
  const Driver cu;
  begin(cu);
  for (int i = 0; i < 200; ++i) {
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemoryPool pool = nullptr;
    CUdeviceptr p = 0;
    cu.check(cu.cuMemPoolCreate(&pool, &props), "cuMemPoolCreate");
    cu.check(cu.cuMemAllocFromPoolAsync(&p, kMiB, pool, nullptr), "cuMemAllocFromPoolAsync");
    usleep(2000);
    cu.check(cu.cuMemFreeAsync(p, nullptr), "cuMemFreeAsync");
    cu.check(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    cu.check(cu.cuMemPoolDestroy(pool), "cuMemPoolDestroy");
  }
}

}  // namespace
}  // namespace tidemark::samples

int main(int argc, char** argv) {
  using namespace tidemark::samples;
  const std::map<std::string, std::function<void(int)>> tasks = {
      {"failures", failures}, {"threads", threads},     {"kernels", kernels},
      {"hold", hold},         {"forks", forks},         {"fork_first", fork_first},
      {"again", again},       {"subscribe", subscribe}, {"pools", pools},
      {"ipc", ipc},           {"open_ipc", open_ipc},   {"captured", captured},
      {"devices", devices},   {"fill", fill},           {"peaks", peaks}};
  const auto task = argc > 1 ? tasks.find(argv[1]) : tasks.end();
  if (task == tasks.end()) {
    std::fprintf(stderr, "usage: capture_host TASK [NUMBER]\n");
    return 2;
  }
  task->second(argc > 2 ? std::atoi(argv[2]) : 0);
  return 0;
}
