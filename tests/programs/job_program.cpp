// A job of several processes that allocate and free memory as fast as they can, and log it
// (job_log.h), until they are killed.
//
//   job_program LOGS PROCESSES     starts the processes and waits for them
//   job_program LOGS rank N        one of them
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "samples/cuda/driver.h"
#include "tests/support/job_log.h"

namespace {

using namespace tidemark::samples;
using namespace tidemark::test;

JobLog& map_log(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(JobLog)) != 0) fail("log", path.c_str());
  void* const memory = mmap(nullptr, sizeof(JobLog), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) fail("log", "cannot be mapped");
  close(fd);
  return *static_cast<JobLog*>(memory);
}

class Worker {
 public:
  Worker(const Driver& cu, ThreadLog& log) : cu_(cu), log_(log) {
    log.tid.store(static_cast<uint32_t>(syscall(SYS_gettid)));
  }

  void run() {
    CUfunction function = idle_kernel();
    for (uint32_t round = 0; log_.done.load() + 16 < kJobCalls; ++round) {
      const size_t size = 4096 * (1 + round % 50);
      const uint64_t device =
          take(size, [&](CUdeviceptr& p) { return cu_.cuMemAlloc_v2(&p, size); });
      const uint64_t ordered =
          take(size, [&](CUdeviceptr& p) { return cu_.cuMemAllocAsync(&p, size, nullptr); });
      const uint64_t pinned = take(size, [&](CUdeviceptr& p) {
        void* host = nullptr;
        const CUresult result = cu_.cuMemHostAlloc(&host, size, 0);
        p = reinterpret_cast<uintptr_t>(host);
        return result;
      });
      if (round % 8 == 0) {
        cu_.check(cu_.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr),
                  "cuLaunchKernel");
      }
      give(device, [&] { return cu_.cuMemFree_v2(device); });
      give(ordered, [&] { return cu_.cuMemFreeAsync(ordered, nullptr); });
      give(pinned, [&] { return cu_.cuMemFreeHost(reinterpret_cast<void*>(pinned)); });
    }
    while (true) pause();
  }

 private:
  CUfunction idle_kernel() {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    cu_.check(cu_.cuModuleLoadData(&module, kIdlePtx), "cuModuleLoadData");
    cu_.check(cu_.cuModuleGetFunction(&function, module, "idle"), "cuModuleGetFunction");
    return function;
  }

  template <typename Call>
  uint64_t take(size_t size, Call&& call) {
    const uint32_t number = log_.begun.load();
    log_.calls[number].size_bytes = size;
    log_.begun.store(number + 1);
    CUdeviceptr address = 0;
    cu_.check(call(address), "allocation");
    log_.calls[number].address = address;
    log_.done.store(number + 1);
    return address;
  }

  template <typename Call>
  void give(uint64_t address, Call&& call) {
    const uint32_t number = log_.begun.load();
    log_.calls[number] = {address, 0};
    log_.begun.store(number + 1);
    cu_.check(call(), "free");
    log_.done.store(number + 1);
  }

  const Driver& cu_;
  ThreadLog& log_;
};

int work(const std::string& logs, const std::string& rank) {
  JobLog& log = map_log(logs + "/rank" + rank + ".log");
  const Driver cu;
  cu.check(cu.cuInit(0), "cuInit");
  CUcontext context = cu.use_device(0);
  std::vector<std::thread> threads;
  for (ThreadLog& thread : log.threads) {
    threads.emplace_back([&cu, &thread, context] {
      cu.check(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
      Worker(cu, thread).run();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}

int launch(char** argv) {
  const int processes = std::atoi(argv[2]);
  for (int rank = 0; rank < processes; ++rank) {
    if (fork() != 0) continue;
    const std::string number = std::to_string(rank);
    setenv("RANK", number.c_str(), 1);
    setenv("WORLD_SIZE", argv[2], 1);
    execl("/proc/self/exe", argv[0], argv[1], "rank", number.c_str(), nullptr);
    _exit(1);
  }
  int status = 0;
  while (wait(&status) > 0) {
    if (status != 0) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4) return work(argv[1], argv[3]);
  return argc == 3 ? launch(argv) : 2;
}
