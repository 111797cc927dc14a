// A CUDA program that executes commands from stdin, for tests that attach to it while it runs.
// Usage: attach_host THREADS
//
//   alloc MIB    allocates, prints "allocated"
//   free         frees the last allocation, prints "freed"
//   time COUNT CALLS
//                makes COUNT rounds of CALLS; prints the nanoseconds per call. CALLS is alloc
//                (cuMemAlloc, cuMemFree), map (cuMemMap, cuMemUnmap) or launch (cuLaunchKernel)
//   fill         opens files until the process has no descriptor left, prints their number
//   close        closes them, prints "closed"
//   fork_quiet   starts a child that does not use CUDA, prints its pid, and ends it at the end
//   fork_first   first line only: starts a child that uses CUDA before this process does
//
// Any other first line starts the work.
//
// With ATTACH_OWN_CONTEXT it makes a context of its own instead of using the primary one.
//
// Meanwhile THREADS threads work in identical rounds. At the end of stdin the program prints the
// sum of a round, which must be the same for all, or fails.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "samples/cuda/driver.h"

namespace tidemark::samples {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::atomic<bool> g_over{false};

uint64_t mix(uint64_t sum, uint64_t value) {
  return (sum ^ value) * 0x100000001b3;
}

// The result of every call goes into the sum; addresses do not.
uint64_t work_round(const Driver& cu, unsigned seed) {
  uint64_t sum = 0xcbf29ce484222325;
  CUdeviceptr held[8] = {};
  for (unsigned i = 0; i < 64; ++i) {
    seed = seed * 1664525 + 1013904223;
    CUdeviceptr& slot = held[seed % 8];
    if (slot != 0) sum = mix(sum, static_cast<uint64_t>(cu.cuMemFree_v2(slot)));
    slot = 0;
    const size_t bytes = 4096 + seed % (1 << 16);
    sum = mix(sum, static_cast<uint64_t>(cu.cuMemAlloc_v2(&slot, bytes)));
    sum = mix(sum, bytes + (slot != 0 ? 1 : 0));
  }
  for (const CUdeviceptr p : held) {
    if (p != 0) sum = mix(sum, static_cast<uint64_t>(cu.cuMemFree_v2(p)));
  }
  return sum;
}

void work(const Driver& cu, CUcontext context, std::atomic<uint64_t>& sum,
          std::atomic<bool>& differs) {
  cu.check(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  do {
    const uint64_t round = work_round(cu, 7);
    uint64_t none = 0;
    if (!sum.compare_exchange_strong(none, round) && none != round) differs = true;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  } while (!g_over);
}

template <typename Round>
double round_ns(int count, Round&& round) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) round();
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / count;
}

double alloc_ns(const Driver& cu, int count) {
  return round_ns(count,
                  [&] {
                    CUdeviceptr p = 0;
                    cu.check(cu.cuMemAlloc_v2(&p, 4096), "cuMemAlloc");
                    cu.check(cu.cuMemFree_v2(p), "cuMemFree");
                  }) /
         2;
}

double map_ns(const Driver& cu, int count) {
  constexpr size_t kBytes = 2 * kMiB;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr range = 0;
  cu.check(cu.cuMemCreate(&handle, kBytes, &prop, 0), "cuMemCreate");
  cu.check(cu.cuMemAddressReserve(&range, kBytes, 0, 0, 0), "cuMemAddressReserve");
  const double ns = round_ns(count, [&] {
    cu.check(cu.cuMemMap(range, kBytes, 0, handle, 0), "cuMemMap");
    cu.check(cu.cuMemUnmap(range, kBytes), "cuMemUnmap");
  });
  cu.check(cu.cuMemAddressFree(range, kBytes), "cuMemAddressFree");
  cu.check(cu.cuMemRelease(handle), "cuMemRelease");
  return ns / 2;
}

double launch_ns(const Driver& cu, int count) {
  CUmodule module = nullptr;
  CUfunction idle = nullptr;
  cu.check(cu.cuModuleLoadData(&module, kIdlePtx), "cuModuleLoadData");
  cu.check(cu.cuModuleGetFunction(&idle, module, "idle"), "cuModuleGetFunction");
  const double ns = round_ns(count, [&] {
    cu.check(cu.cuLaunchKernel(idle, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr), "launch");
  });
  cu.check(cu.cuModuleUnload(module), "cuModuleUnload");
  return ns;
}

double call_ns(const Driver& cu, const char* arguments) {
  char* calls = nullptr;
  const auto count = static_cast<int>(std::strtol(arguments, &calls, 10));
  if (std::strncmp(calls, " map", 4) == 0) return map_ns(cu, count);
  if (std::strncmp(calls, " launch", 7) == 0) return launch_ns(cu, count);
  return alloc_ns(cu, count);
}

pid_t start_child(bool uses_cuda) {
  int ready[2];
  if (pipe(ready) != 0) std::exit(3);
  const pid_t child = fork();
  if (child == 0) {
    if (uses_cuda) {
      const Driver cu;
      cu.check(cu.cuInit(0), "cuInit");
      cu.use_device(0);
    }
    if (write(ready[1], "r", 1) != 1) _exit(3);
    pause();
    _exit(0);
  }
  char byte = 0;
  if (read(ready[0], &byte, 1) != 1) std::exit(3);
  close(ready[0]);
  close(ready[1]);
  return child;
}

std::vector<int> open_all_descriptors() {
  std::vector<int> files;
  for (int file = 0; (file = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) files.push_back(file);
  return files;
}

int obey(int threads) {
  std::vector<pid_t> children;
  char line[64];
  // Before this process uses CUDA: a child forked later could not use it.
  if (std::fgets(line, sizeof line, stdin) != nullptr &&
      std::strncmp(line, "fork_first", 10) == 0) {
    children.push_back(start_child(true));
    std::printf("%d\n", children.back());
    std::fflush(stdout);
  }
  const Driver cu;
  cu.check(cu.cuInit(0), "cuInit");
  CUcontext context = nullptr;
  if (std::getenv("ATTACH_OWN_CONTEXT") != nullptr) {
    cu.check(cu.cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
  } else {
    context = cu.use_device(0);
  }
  std::atomic<uint64_t> sum{0};
  std::atomic<bool> differs{false};
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&] { work(cu, context, sum, differs); });
  }
  // A library that is loaded late is armed by name.
  if (std::getenv("ATTACH_LATE") != nullptr) {
    const auto arm = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "tidemark_arm"));
    if (arm == nullptr || arm() != 1 || arm() != 1) return 5;
  }
  std::vector<CUdeviceptr> held;
  std::vector<int> files;
  std::printf("ready\n");
  std::fflush(stdout);
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    if (std::strncmp(line, "alloc ", 6) == 0) {
      held.emplace_back();
      const auto mib = static_cast<size_t>(std::atoi(line + 6));
      cu.check(cu.cuMemAlloc_v2(&held.back(), mib * kMiB), "cuMemAlloc");
      std::printf("allocated\n");
    } else if (std::strncmp(line, "free", 4) == 0 && !held.empty()) {
      cu.check(cu.cuMemFree_v2(held.back()), "cuMemFree");
      held.pop_back();
      std::printf("freed\n");
    } else if (std::strncmp(line, "time ", 5) == 0) {
      std::printf("%.1f\n", call_ns(cu, line + 5));
    } else if (std::strncmp(line, "fill", 4) == 0) {
      files = open_all_descriptors();
      std::printf("%zu\n", files.size());
    } else if (std::strncmp(line, "close", 5) == 0) {
      for (const int file : files) close(file);
      std::printf("closed\n");
    } else if (std::strncmp(line, "fork_quiet", 10) == 0) {
      children.push_back(start_child(false));
      std::printf("%d\n", children.back());
    }
    std::fflush(stdout);
  }
  g_over = true;
  for (std::thread& worker : workers) worker.join();
  for (const pid_t child : children) {
    kill(child, SIGTERM);
    waitpid(child, nullptr, 0);
  }
  if (differs) return 4;
  std::printf("sum %llx\n", static_cast<unsigned long long>(sum.load()));
  return 0;
}

}  // namespace
}  // namespace tidemark::samples

int main(int argc, char** argv) {
  return tidemark::samples::obey(argc > 1 ? std::atoi(argv[1]) : 0);
}
