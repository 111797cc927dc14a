// Leaks a little per iteration, like a program that keeps one result too many.
//
// tidemark should find: device memory growing by 1 MiB per step, all of it from keep_result(); the
// temporaries of work() (6 MiB per step) are allocated and freed and are not part of it.
//
// Usage: leak [ITERATIONS [MILLISECONDS BETWEEN TWO OF THEM]]
#include <unistd.h>

#include <vector>

#include "samples/cuda/driver.h"

namespace tidemark::samples {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kLeakBytes = kMiB;

class Leak {
 public:
  Leak() {
    cu_.check(cu_.cuInit(0), "cuInit");
    cu_.use_device(0);
    cu_.check(cu_.cuModuleLoadData(&module_, kIdlePtx), "cuModuleLoadData");
    cu_.check(cu_.cuModuleGetFunction(&idle_, module_, "idle"), "cuModuleGetFunction");
  }

  void step() {
    work();
    keep_result();
    cu_.check(cu_.cuCtxSynchronize(), "cuCtxSynchronize");
  }

  size_t leaked_bytes() const { return kept_.size() * kLeakBytes; }

 private:
  CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr memory = 0;
    cu_.check(cu_.cuMemAlloc_v2(&memory, bytes), "cuMemAlloc");
    return memory;
  }

  [[gnu::noinline]] void work() {
    std::vector<CUdeviceptr> temporaries;
    for (size_t bytes : {kMiB, 2 * kMiB, 3 * kMiB}) temporaries.push_back(allocate(bytes));
    cu_.check(cu_.cuLaunchKernel(idle_, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr),
              "cuLaunchKernel");
    for (CUdeviceptr memory : temporaries) cu_.check(cu_.cuMemFree_v2(memory), "cuMemFree");
  }

  [[gnu::noinline]] void keep_result() { kept_.push_back(allocate(kLeakBytes)); }

  Driver cu_;
  CUmodule module_ = nullptr;
  CUfunction idle_ = nullptr;
  std::vector<CUdeviceptr> kept_;
};

}  // namespace
}  // namespace tidemark::samples

int main(int argc, char** argv) {
  const int iterations = argc > 1 ? std::atoi(argv[1]) : 200;
  tidemark::samples::Leak leak;
  const int pause_ms = argc > 2 ? std::atoi(argv[2]) : 0;
  for (int i = 0; i < iterations; ++i) {
    leak.step();
    if (pause_ms > 0) ::usleep(static_cast<useconds_t>(pause_ms) * 1000);
  }
  std::printf(
      "{\"sample\":\"leak\",\"iterations\":%d,\"bytes_per_iteration\":%zu,"
      "\"leaked_bytes\":%zu}\n",
      iterations, tidemark::samples::kLeakBytes, leak.leaked_bytes());
  return 0;
}
