#include "injector/complain.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

namespace tidemark::injector {

void complain(std::atomic_flag& said, const char* format, ...) noexcept {
  if (said.test_and_set(std::memory_order_relaxed)) return;
  const int saved_errno = errno;
  char line[1024] = "tidemark: ";
  constexpr int kPrefix = 10;
  va_list arguments;
  va_start(arguments, format);
  const int written = std::vsnprintf(line + kPrefix, sizeof line - kPrefix - 1, format, arguments);
  va_end(arguments);
  const int size = kPrefix + std::clamp(written, 0, static_cast<int>(sizeof line) - kPrefix - 2);
  line[size] = '\n';
  // A stderr that takes nothing is not our host's problem.
  if (::write(STDERR_FILENO, line, static_cast<size_t>(size) + 1) < 0) errno = saved_errno;
  errno = saved_errno;
}

}  // namespace tidemark::injector
