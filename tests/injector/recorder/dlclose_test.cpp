// A host that closes the library while threads are in it: nothing of it may be unmapped, and the
// trace is still finished at exit.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"
#include "tests/support/trace_contents.h"

namespace tidemark::test {
namespace {

constexpr int kThreads = 4;
constexpr uint64_t kRows = 1000;

[[noreturn]] void be_the_host(const std::string& directory) {
  void* const library = dlopen(TIDEMARK_GUEST, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) ::_exit(10);
  const auto start = reinterpret_cast<bool (*)(const char*)>(dlsym(library, "guest_start"));
  const auto record = reinterpret_cast<bool (*)(uint64_t)>(dlsym(library, "guest_record"));
  if (start == nullptr || record == nullptr || !start(directory.c_str())) ::_exit(11);
  {
    std::atomic<int> awaited{kThreads + 1};
    const auto meet = [&awaited] {
      --awaited;
      while (awaited > 0) std::this_thread::yield();
    };
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (uint64_t i = 0; i < kRows / 2; ++i) record(i);
        meet();
        for (uint64_t i = 0; i < kRows / 2; ++i) record(i);
      });
    }
    meet();
    if (dlclose(library) != 0) ::_exit(12);
  }  // the threads end, and their cleanup runs code of the library
  std::exit(0);
}

TEST(DlcloseTest, LibraryStaysAndTheTraceIsWhole) {
  const ScratchDirectory directory;
  const pid_t child = ::fork();
  if (child == 0) be_the_host(directory.path());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(directory.files(".ring").empty());
  const auto traces = directory.files(".tmk");
  ASSERT_EQ(traces.size(), 1U);
  const TraceContents trace = read_trace(traces[0]);
  EXPECT_EQ(trace.framework_events.size(), kThreads * kRows);
  EXPECT_FALSE(trace.damage.any() || trace.damage.unfinished);
}

}  // namespace
}  // namespace tidemark::test
