#include "injector/process/complain.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "injector/process/tool_thread.h"

namespace tidemark::injector {

namespace {
PidLock g_lock;
char g_last[1024] = "";
}  // namespace

void complain(std::atomic_flag& said, const char* format, ...) noexcept {
  const int saved_errno = errno;
  char line[1024] = "tidemark: ";
  constexpr int kPrefix = 10;
  va_list arguments;
  va_start(arguments, format);
  const int written = std::vsnprintf(line + kPrefix, sizeof line - kPrefix - 1, format, arguments);
  va_end(arguments);
  const int size = kPrefix + std::clamp(written, 0, static_cast<int>(sizeof line) - kPrefix - 2);
  line[size] = '\0';
  g_lock.lock();
  std::snprintf(g_last, sizeof g_last, "%s", line + kPrefix);
  g_lock.unlock();
  line[size] = '\n';
  if (said.test_and_set(std::memory_order_relaxed)) {
    errno = saved_errno;
    return;
  }
  // If stderr cannot be written to, that is not the host's problem.
  if (::write(STDERR_FILENO, line, static_cast<size_t>(size) + 1) < 0) errno = saved_errno;
  errno = saved_errno;
}

void copy_last_complaint(char* out, size_t size) noexcept {
  g_lock.lock();
  std::snprintf(out, size, "%s", g_last);
  g_lock.unlock();
}

}  // namespace tidemark::injector
