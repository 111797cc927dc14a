// A program that records and then ends in some way; the tests check what is left.
//
//   recorder_victim DIRECTORY COUNTERS END [THREADS [BUFFER_MB [FLUSH_MS]]]
//
// COUNTERS is a one-page file that the program maps shared: slot t holds the number of rows that
// thread t has committed, written after each row, so that it survives a SIGKILL. A row carries the
// number of its thread and its own; every 64th also names a new string and a new stack.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "injector/recorder/recorder.h"
#include "tests/support/forked_leaks.h"
#include "tests/support/usual_signals.h"

namespace {

using namespace tidemark;
using namespace tidemark::injector;

std::atomic<uint64_t>* counters = nullptr;
std::atomic<bool> stop_recording{false};

// True if committed.
bool record_one(uint32_t thread, uint64_t number) {
  FrameworkEvent row{};
  row.time_ns = now_ns();
  row.address = number;
  row.thread = thread;
  row.action = FrameworkAction::kAlloc;
  if (number % 64 == 0) {
    const std::string text = std::to_string(thread) + ":" + std::to_string(number);
    FrameKey frames[3];
    for (uint64_t i = 0; i < 3; ++i) {
      frames[i].offset = (number / 64 + i) % 1000;
      frames[i].kind = FrameKind::kNative;
    }
    row.metadata = recorder().intern_string(text);
    row.stack = recorder().intern_stack(frames);
    if (row.metadata == 0 || row.stack == 0) return false;
  }
  if (!recorder().record(row)) return false;
  counters[thread].store(number + 1, std::memory_order_release);
  return true;
}

void record_many(uint32_t thread, uint64_t count) {
  for (uint64_t i = 0; i < count && !stop_recording;) {
    if (record_one(thread, i)) {
      ++i;
    } else {
      std::this_thread::yield();
    }
  }
}

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  _exit(99);
}

void start_or_fail(const RecorderOptions& options) {
  if (!recorder().start(options)) _exit(98);
}

// The child must not touch the parent's recording; then it makes its own.
void fork_and_record(const RecorderOptions& options) {
  record_many(0, 1000);
  const pid_t child = fork();
  if (child == 0) {
    if (recorder().on() || record_one(7, 0)) _exit(97);
    start_or_fail(options);
    record_many(1, 500);
    exit(0);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) _exit(96);
  for (uint64_t i = 1000; i < 2000;) i += record_one(0, i) ? 1U : 0U;
}

// Like sandboxes and daemons: no atfork handler runs.
void raw_clone_and_record() {
  record_many(0, 1000);
  const long child = syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (child == 0) {
    const bool off = !recorder().on() && !record_one(7, 0);
    _exit(off ? 0 : 97);
  }
  int status = 0;
  if (waitpid(static_cast<pid_t>(child), &status, 0) != child || status != 0) _exit(96);
}

// A host that closes all descriptors and reuses their numbers for its own files.
void close_everything(const std::string& directory) {
  record_many(0, 1000);
  // The host's files get low numbers: none that the recorder may be writing to at this moment.
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string path = std::filesystem::read_symlink(entry.path(), gone).string();
    const bool ours = path.ends_with(".tmk") || path.ends_with(".ring");
    if (ours && std::stoi(entry.path().filename()) < 256) _exit(93);
  }
  for (int fd = 3; fd < 1024; ++fd) close(fd);
  for (int i = 0; i < 64; ++i) {
    const std::string path = directory + "/host" + std::to_string(i);
    if (open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600) < 0) fail("open");
  }
  for (uint64_t i = 1000; i < 3000;) i += record_one(0, i) ? 1U : 0U;
  if (!recorder().flush_now(10'000)) _exit(95);
}

// Somebody empties the ring's file.
void lose_the_ring(const std::string& directory) {
  record_many(0, 1000);
  if (!recorder().flush_now(10'000)) _exit(95);
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".ring" && truncate(entry.path().c_str(), 0) != 0) {
      fail("truncate");
    }
  }
  for (uint64_t i = 1000; i < 200'000; ++i) record_one(0, i);
  std::puts("survived");
}

// A fault of the host's own.
void fault_outside_of_the_ring(const char* own_file) {
  const int fd = open(own_file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd < 0 || page == MAP_FAILED) fail(own_file);
  *static_cast<volatile char*>(page) = 1;
}

void limit_file_size(rlim_t bytes) {
  const rlimit limit{bytes, RLIM_INFINITY};
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) fail("setrlimit");
}

// SIGXFSZ keeps its default action, which ends the process: none of our writes may raise it.
void fill_the_disk() {
  limit_file_size(32 << 10);
  for (uint64_t i = 0; i < 200'000; ++i) {
    record_one(0, i);
    // So that the disk is full before the ring is, on a busy machine, too.
    if (i % 10'000 == 0) recorder().flush_now(1'000);
  }
  recorder().flush_now(1'000);
  recorder().flush_now(1'000);
}

int end_by(std::string_view end, const std::string& directory, const RecorderOptions& options) {
  if (end == "fork") {
    fork_and_record(options);
  } else if (end == "clone") {
    raw_clone_and_record();
  } else if (end == "close") {
    close_everything(directory);
  } else if (end == "truncate") {
    lose_the_ring(directory);
  } else if (end == "fault") {
    fault_outside_of_the_ring((directory + "/own").c_str());
  } else if (end == "full") {
    fill_the_disk();
  } else if (end == "nothing") {
    while (true) pause();
  } else {
    record_many(0, 5000);
  }
  if (end == "abort") abort();
  if (end == "_exit") _exit(0);
  if (end == "exec") execl("/bin/true", "true", nullptr);
  if (end == "kill") raise(SIGKILL);
  if (end == "bus") raise(SIGBUS);
  return 0;
}

int stress(uint32_t threads) {
  std::vector<std::thread> all;
  for (uint32_t t = 0; t < threads; ++t) all.emplace_back(record_many, t, UINT64_MAX);
  for (std::thread& thread : all) thread.join();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::string directory = argv[1];
  const std::string_view end = argv[3];
  const int fd = open(argv[2], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, 4096) != 0) fail(argv[2]);
  void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) fail("mmap");
  counters = static_cast<std::atomic<uint64_t>*>(page);

  const auto number = [&](int i, uint32_t otherwise) {
    return argc > i ? static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 10)) : otherwise;
  };
  RecorderOptions options;
  options.directory = directory.c_str();
  options.ring_directory = std::getenv("TIDEMARK_RING_DIR");
  options.buffer_mb = number(5, 4);
  options.flush_period_ms = number(6, 1000);
  options.drain_period_ms = std::min(options.flush_period_ms, 50U);
  if (end == "small-limit") limit_file_size(1 << 20);
  if (end == "some-limit") limit_file_size(10 << 20);
  if (!recorder().start(options)) {
    if (record_one(0, 0)) return 94;
    std::puts("off");
    return 0;
  }
  return end == "stress" ? stress(number(4, 8)) : end_by(end, directory, options);
}
