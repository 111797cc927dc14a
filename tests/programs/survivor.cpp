// A CUDA program that prints what it did and then ends in some way, for tests that compare a run
// with the recorder to one without.
//
//   survivor END [NUMBER]
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "samples/cuda/driver.h"
#include "tests/support/usual_signals.h"

namespace {

using namespace tidemark::samples;

constexpr size_t kKiB = size_t{1} << 10;

void use_memory(const Driver& cu, int rounds) {
  size_t bytes = 0;
  for (int i = 0; i < rounds; ++i) {
    CUdeviceptr p = 0;
    cu.check(cu.cuMemAlloc_v2(&p, 64 * kKiB), "cuMemAlloc");
    cu.check(cu.cuMemFree_v2(p), "cuMemFree");
    bytes += 64 * kKiB;
  }
  std::printf("used %zu bytes in turn, errno %d\n", bytes, errno);
}

void use_threads(const Driver& cu, CUcontext context, int count) {
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) {
    threads.emplace_back([&] {
      cu.check(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
      for (int i = 0; i < 50; ++i) {
        CUdeviceptr p = 0;
        std::vector<char> host(1000, 'x');  // keep the host's allocator busy, too
        cu.check(cu.cuMemAlloc_v2(&p, 4 * kKiB), "cuMemAlloc");
        cu.check(cu.cuMemFree_v2(p), "cuMemFree");
        done += host[999] == 'x' ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("%d calls in %d threads\n", done.load(), count);
}

// Closes everything but its output, then reuses the numbers for its own files: nothing else may
// write to them.
void close_everything(const Driver& cu) {
  usleep(500'000);  // until the recorder has had its first rounds, which open libraries
  // Not close(), for which the thread sanitizer would blame this program, rightly.
  for (int fd = 3; fd < 1024; ++fd) syscall(SYS_close, fd);
  char name[] = "/tmp/tidemark-survivor-XXXXXX";
  std::vector<int> own;
  for (int i = 0; i < 32; ++i) {
    std::strcpy(name + sizeof name - 7, "XXXXXX");
    own.push_back(mkstemp(name));
    unlink(name);
  }
  use_memory(cu, 2000);
  long long written = 0;
  for (const int fd : own) {
    struct stat info {};
    fstat(fd, &info);
    written += info.st_size;
  }
  std::printf("first own file is %d, %lld bytes in them\n", own[0], written);
}

void run_out(const Driver& cu) {
  CUdeviceptr p = 0;
  for (int i = 0; i < 20; ++i) {
    if (cu.cuMemAlloc_v2(&p, size_t{1} << 45) != CUDA_ERROR_OUT_OF_MEMORY) std::puts("not refused");
  }
  std::puts("refused");
}

int end_by(std::string_view end) {
  std::fflush(stdout);
  if (end == "exit3") std::exit(3);
  if (end == "quick") std::quick_exit(4);
  if (end == "_exit") _exit(5);
  if (end == "abort") std::abort();
  if (end == "throw") throw std::runtime_error("nobody catches it");
  if (end == "kill") raise(SIGKILL);
  if (end == "term") raise(SIGTERM);
  if (end == "segv") raise(SIGSEGV);
  if (end == "exec") execl("/bin/sh", "sh", "-c", "echo another program; exit 6", nullptr);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view end = argc > 1 ? argv[1] : "";
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (end == "small_files") {
    const rlimit limit{64 * kKiB, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  errno = 0;
  const Driver cu;
  cu.check(cu.cuInit(0), "cuInit");
  CUcontext context = cu.use_device(0);
  if (end == "short") return 0;
  if (end == "close_all") {
    close_everything(cu);
  } else if (end == "threads") {
    use_threads(cu, context, argc > 2 ? std::atoi(argv[2]) : 64);
  } else if (end == "load") {
    usleep(500'000);  // until the recorder has had its first rounds
    std::printf("loaded: %d\n", dlopen(argv[2], RTLD_NOW) != nullptr);
  } else if (end == "run_out") {
    run_out(cu);
  } else {
    use_memory(cu, end == "small_files" ? 20000 : 200);
  }
  return end_by(end);
}
