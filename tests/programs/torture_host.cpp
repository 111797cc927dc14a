// A CUDA program whose threads do at once what programs do that are hard on a guest: allocate, fork,
// load and unload libraries, change the environment, start other programs.
// Usage: torture_host PLUGIN
//
//   pause     from stdin: ends all threads, prints "paused"; another line starts them again
//
// Every thread works in identical rounds. At the end of stdin the program prints the sum of a round
// for each kind of work, the same however many rounds there were, or fails.
//
//   torture_host child    one of the programs it starts
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "samples/cuda/driver.h"

namespace tidemark::samples {
namespace {

uint64_t mix(uint64_t sum, uint64_t value) {
  return (sum ^ value) * 0x100000001b3;
}
constexpr uint64_t kSeed = 0xcbf29ce484222325;

struct Host {
  const Driver cu;
  CUcontext context = nullptr;
  CUfunction idle = nullptr;
  const char* plugin = nullptr;
  std::vector<std::string> environment;  // of the programs it starts
  std::mutex environ_lock;               // between its own threads, as a careful program has it
};

// The result of every call goes into the sum; addresses do not.
uint64_t allocate(Host& host) {
  const Driver& cu = host.cu;
  uint64_t sum = kSeed;
  const auto add = [&sum](CUresult result) { sum = mix(sum, static_cast<uint64_t>(result)); };
  for (size_t i = 1; i <= 16; ++i) {
    CUdeviceptr device = 0;
    CUdeviceptr ordered = 0;
    void* pinned = nullptr;
    add(cu.cuMemAlloc_v2(&device, i * 4096));
    add(cu.cuMemAllocAsync(&ordered, i * 512, nullptr));
    add(cu.cuMemHostAlloc(&pinned, i * 512, 0));
    add(cu.cuLaunchKernel(host.idle, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr));
    add(cu.cuMemFree_v2(device));
    add(cu.cuMemFreeAsync(ordered, nullptr));
    add(cu.cuMemFreeHost(pinned));
  }
  CUdeviceptr refused = 0;
  add(cu.cuMemAlloc_v2(&refused, size_t{1} << 45));
  return sum;
}

uint64_t wait_for(pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return static_cast<uint64_t>(status);
}

// The child only does what is allowed in the child of a program with threads.
uint64_t fork_child(Host&) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe", std::strerror(errno));
  const pid_t child = fork();
  if (child < 0) fail("fork", std::strerror(errno));
  if (child == 0) {
    if (write(ends[1], "child", 5) != 5) _exit(1);
    _exit(7);
  }
  char text[5] = "";
  uint64_t sum = mix(kSeed, static_cast<uint64_t>(read(ends[0], text, sizeof text)));
  for (const char c : text) sum = mix(sum, static_cast<uint64_t>(c));
  close(ends[0]);
  close(ends[1]);
  return mix(sum, wait_for(child));
}

// Allocates from inside a library that comes and goes.
uint64_t load_library(Host& host) {
  void* const library = dlopen(host.plugin, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail("dlopen", dlerror());
  using Call = int (*)(int (*)(void*), void*);
  const auto call = reinterpret_cast<Call>(dlsym(library, "plugin_call"));
  if (call == nullptr) fail("dlsym", dlerror());
  const int result = call(
      [](void* context) {
        const Driver& cu = static_cast<Host*>(context)->cu;
        CUdeviceptr p = 0;
        if (cu.cuMemAlloc_v2(&p, 4096) != CUDA_SUCCESS) return 1;
        return cu.cuMemFree_v2(p) == CUDA_SUCCESS ? 10 : 2;
      },
      &host);
  return mix(mix(kSeed, static_cast<uint64_t>(result)), static_cast<uint64_t>(dlclose(library)));
}

// The list of variables grows and shrinks, so that the C library moves it.
uint64_t change_environment(Host& host) {
  uint64_t sum = kSeed;
  const std::lock_guard lock(host.environ_lock);
  for (int i = 0; i < 64; ++i) {
    const std::string name = "TORTURE_" + std::to_string(i);
    setenv(name.c_str(), std::string(static_cast<size_t>(i), 'x').c_str(), 1);
  }
  for (int i = 0; i < 64; ++i) {
    const std::string name = "TORTURE_" + std::to_string(i);
    const char* const value = getenv(name.c_str());
    sum = mix(sum, value == nullptr ? 999 : std::strlen(value));
    unsetenv(name.c_str());
  }
  return sum;
}

// A program that uses CUDA itself. Its environment is a copy from before the threads.
uint64_t start_program(Host& host) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe", std::strerror(errno));
  std::vector<char*> environment;
  for (std::string& entry : host.environment) environment.push_back(entry.data());
  environment.push_back(nullptr);
  char name[] = "/proc/self/exe";
  char word[] = "child";
  char* arguments[] = {name, word, nullptr};
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  pid_t child = 0;
  const int error = posix_spawn(&child, name, &files, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  if (error != 0) fail("posix_spawn", std::strerror(error));
  uint64_t sum = kSeed;
  char text[64];
  for (ssize_t n = 0; (n = read(ends[0], text, sizeof text)) > 0;) {
    for (ssize_t i = 0; i < n; ++i) sum = mix(sum, static_cast<uint64_t>(text[i]));
  }
  close(ends[0]);
  return mix(sum, wait_for(child));
}

struct Work {
  const char* name;
  int threads;
  uint64_t (*round)(Host&);
  int pause_us;
};
constexpr std::array<Work, 5> kWork = {{{"allocate", 16, allocate, 2'000},
                                        {"fork", 4, fork_child, 20'000},
                                        {"load", 4, load_library, 2'000},
                                        {"environment", 4, change_environment, 2'000},
                                        {"start", 4, start_program, 500'000}}};

class Threads {
 public:
  explicit Threads(Host& host) : host_(host) {}

  void start() {
    over_ = false;
    for (size_t kind = 0; kind < kWork.size(); ++kind) {
      for (int i = 0; i < kWork[kind].threads; ++i) {
        threads_.emplace_back([this, kind] { work(kind); });
      }
    }
  }

  void end() {
    over_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  int print() const {
    for (size_t kind = 0; kind < kWork.size(); ++kind) {
      std::printf("%s %llx\n", kWork[kind].name, static_cast<unsigned long long>(sums_[kind]));
    }
    return differs_ ? 4 : 0;
  }

 private:
  void work(size_t kind) {
    host_.cu.check(host_.cu.cuCtxSetCurrent(host_.context), "cuCtxSetCurrent");
    do {
      const uint64_t round = kWork[kind].round(host_);
      uint64_t known = 0;
      if (!sums_[kind].compare_exchange_strong(known, round) && known != round) {
        if (!differs_.exchange(true)) std::fprintf(stderr, "%s differs\n", kWork[kind].name);
      }
      for (int slept = 0; slept < kWork[kind].pause_us && !over_; slept += 2'000) usleep(2'000);
    } while (!over_);
  }

  Host& host_;
  std::atomic<bool> over_{false};
  std::atomic<bool> differs_{false};
  std::array<std::atomic<uint64_t>, kWork.size()> sums_{};
  std::vector<std::thread> threads_;
};

// As a program does that also watches its card: NVML and CUPTI are loaded, and have read their
// environment, before there are threads.
void load_libraries() {
  void* const nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (nvml == nullptr || dlopen("libcupti.so.13", RTLD_NOW) == nullptr) fail("dlopen", dlerror());
  const auto init = reinterpret_cast<int (*)()>(dlsym(nvml, "nvmlInit_v2"));
  if (init == nullptr || init() != 0) fail("nvmlInit_v2", "failed");
}

void use_cuda(Host& host) {
  const Driver& cu = host.cu;
  CUmodule module = nullptr;
  cu.check(cu.cuInit(0), "cuInit");
  host.context = cu.use_device(0);
  cu.check(cu.cuModuleLoadData(&module, kIdlePtx), "cuModuleLoadData");
  cu.check(cu.cuModuleGetFunction(&host.idle, module, "idle"), "cuModuleGetFunction");
}

int be_child() {
  Host host;
  use_cuda(host);
  std::printf("child %llx\n", static_cast<unsigned long long>(allocate(host)));
  return 9;
}

int obey(const char* plugin) {
  Host host;
  host.plugin = plugin;
  for (char** entry = environ; *entry != nullptr; ++entry) host.environment.emplace_back(*entry);
  load_libraries();
  use_cuda(host);
  Threads threads(host);
  threads.start();
  std::printf("ready\n");
  std::fflush(stdout);
  char line[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    threads.end();
    std::printf("paused\n");
    std::fflush(stdout);
    if (std::fgets(line, sizeof line, stdin) == nullptr) break;
    threads.start();
  }
  threads.end();
  return threads.print();
}

}  // namespace
}  // namespace tidemark::samples

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const bool child = std::strcmp(argv[1], "child") == 0;
  return child ? tidemark::samples::be_child() : tidemark::samples::obey(argv[1]);
}
