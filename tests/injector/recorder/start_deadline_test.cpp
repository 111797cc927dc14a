// A start of the recorder that hangs in the file system does not stop other threads.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include <gtest/gtest.h>

#include "injector/recorder/recorder.h"
#include "tests/support/scratch_directory.h"

namespace {

std::atomic<bool> g_hang{false};
std::atomic<bool> g_hanging{false};

}  // namespace

// Instead of the C library's: the recorder reserves the space of its ring with it.
extern "C" int posix_fallocate(int fd, off_t, off_t bytes) {
  while (g_hang.load()) {
    g_hanging.store(true);
    ::usleep(1000);
  }
  return ::ftruncate(fd, bytes) == 0 ? 0 : errno;
}

namespace tidemark::injector {
namespace {

// A test that hangs would say nothing: ends the process with a message.
class Watchdog {
 public:
  Watchdog() : thread_([this] { watch(); }) {}
  ~Watchdog() {
    over_.store(true);
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch() {
    for (int tenths = 0; tenths < 300; ++tenths) {
      if (over_.load()) return;
      ::usleep(100'000);
    }
    static constexpr char kText[] = "a call waited for 30 s\n";
    static_cast<void>(!::write(STDERR_FILENO, kText, sizeof kText - 1));
    ::_exit(1);
  }
  std::atomic<bool> over_{false};
  std::thread thread_;
};

TEST(StartDeadlineTest, AHangingStartStopsNobodyElse) {
  const test::ScratchDirectory directory;
  RecorderOptions options;
  options.directory = directory.path().c_str();
  options.buffer_mb = 4;
  const Watchdog watchdog;
  g_hang.store(true);
  std::thread first([&] { EXPECT_TRUE(recorder().start(options)); });
  while (!g_hanging.load()) ::usleep(1000);
  EXPECT_FALSE(recorder().start(options));
  EXPECT_FALSE(recorder().add_finish_hook([](void*) noexcept {}, nullptr));
  EXPECT_EQ(recorder().stop().rows, 0U);
  g_hang.store(false);
  first.join();
  EXPECT_TRUE(recorder().on());
  EXPECT_TRUE(recorder().add_finish_hook([](void*) noexcept {}, nullptr));
  EXPECT_TRUE(recorder().stop().finished);
}

}  // namespace
}  // namespace tidemark::injector
