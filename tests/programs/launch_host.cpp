// A CUDA program that launches kernels in steps, and logs when: launch number N has a grid of N.
//
//   launch_host LOG LAUNCHES GAP_US STEP [EVENT@NUMBER]...
//
// After each STEP launches a step ends, in which one allocation is made and freed. Before launch
// NUMBER, EVENT happens: "peak" allocates 64 MiB for good, "oom" asks for more than the card has,
// "fork" forks a child that exits, "kill" ends the process by SIGKILL, "quit" by _exit, "threads"
// makes the rest on four threads. A line of LOG: number, times before and after in ns.
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "include/tidemark.h"
#include "samples/cuda/driver.h"
#include "tests/support/forked_leaks.h"

namespace {

using namespace tidemark::samples;

constexpr size_t kMiB = size_t{1} << 20;

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct Entry {
  int64_t before_ns = 0;
  int64_t after_ns = 0;
};

class Host {
 public:
  Host(const char* log, unsigned launches, unsigned gap_us, unsigned step)
      : path_(log), gap_us_(gap_us), step_(step), log_(launches + 1) {
    cu_.check(cu_.cuInit(0), "cuInit");
    cu_.check(cu_.cuDevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain");
    cu_.check(cu_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    CUmodule module = nullptr;
    cu_.check(cu_.cuModuleLoadData(&module, kIdlePtx), "cuModuleLoadData");
    cu_.check(cu_.cuModuleGetFunction(&idle_, module, "idle"), "cuModuleGetFunction");
  }

  void run(const std::map<unsigned, std::string>& events) {
    for (unsigned number = 1; number < log_.size(); ++number) {
      if (const auto event = events.find(number); event != events.end()) {
        if (event->second == "threads") return run_threads(number);
        happen(event->second);
      }
      launch(number);
    }
  }

  void write_log() const {
    std::FILE* const file = std::fopen(path_, "w");
    if (file == nullptr) fail(path_, "cannot be written");
    for (size_t i = 1; i < log_.size(); ++i) {
      if (log_[i].before_ns == 0) break;
      std::fprintf(file, "%zu %lld %lld\n", i, static_cast<long long>(log_[i].before_ns),
                   static_cast<long long>(log_[i].after_ns));
    }
    std::fclose(file);
  }

 private:
  void launch(unsigned number) {
    Entry& entry = log_[number];
    entry.before_ns = now_ns();
    cu_.check(cu_.cuLaunchKernel(idle_, number, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr),
              "cuLaunchKernel");
    entry.after_ns = now_ns();
    const int64_t next_ns = entry.after_ns + int64_t{gap_us_} * 1000;
    while (now_ns() < next_ns) {
      if (gap_us_ > 500) usleep(200);
    }
    if (number % step_ == 0) end_step(number / step_);
  }

  void end_step(unsigned number) {
    CUdeviceptr p = 0;
    cu_.check(cu_.cuMemAlloc_v2(&p, kMiB), "cuMemAlloc");
    cu_.check(cu_.cuMemFree_v2(p), "cuMemFree");
    tidemark_step(number);
  }

  void run_threads(unsigned first) {
    std::atomic<unsigned> next{first};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        cu_.check(cu_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
        for (unsigned n = next++; n < log_.size(); n = next++) launch(n);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void happen(const std::string& event) {
    CUdeviceptr p = 0;
    if (event == "peak") cu_.check(cu_.cuMemAlloc_v2(&p, 64 * kMiB), "cuMemAlloc");
    if (event == "oom") static_cast<void>(cu_.cuMemAlloc_v2(&p, size_t{1} << 45));
    if (event == "fork") {
      const pid_t child = fork();
      if (child == 0) std::exit(0);
      int status = 0;
      waitpid(child, &status, 0);
      if (status != 0) fail("the child", "did not exit with 0");
    }
    if (event == "kill" || event == "quit") write_log();
    if (event == "kill") raise(SIGKILL);
    if (event == "quit") _exit(0);
  }

  const char* path_;
  unsigned gap_us_;
  unsigned step_;
  std::vector<Entry> log_;
  const Driver cu_;
  CUcontext context_ = nullptr;
  CUfunction idle_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) fail("launch_host", "needs LOG LAUNCHES GAP_US STEP");
  std::map<unsigned, std::string> events;
  for (int i = 5; i < argc; ++i) {
    const std::string text = argv[i];
    const size_t at = text.find('@');
    if (at == std::string::npos) fail(argv[i], "is not EVENT@NUMBER");
    events[static_cast<unsigned>(std::atoi(text.c_str() + at + 1))] = text.substr(0, at);
  }
  const auto number = [&](int i) { return static_cast<unsigned>(std::atoi(argv[i])); };
  Host host(argv[1], number(2), number(3), number(4));
  host.run(events);
  host.write_log();
  return 0;
}
