#include "injector/process/process_identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstring>

#include "injector/process/now.h"

namespace tidemark::injector {

namespace {

// The start of a /proc file as text; "" if it cannot be read.
template <size_t Size>
void read_text(const char* path, char (&out)[Size]) {
  std::memset(out, 0, Size);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t n = ::read(fd, out, Size - 1);
  ::close(fd);
  out[n < 0 ? 0 : n] = '\0';
  out[std::strcspn(out, "\n")] = '\0';
}

// Field 22, counted after the command name, which may itself contain spaces and parentheses.
uint64_t start_ticks() {
  char line[1024];
  read_text("/proc/self/stat", line);
  const char* at = std::strrchr(line, ')');
  for (int field = 2; at != nullptr && field < 22; ++field) {
    at = std::strchr(at + 1, ' ');
  }
  uint64_t ticks = 0;
  if (at != nullptr) std::from_chars(at + 1, line + std::strlen(line), ticks);
  return ticks;
}

}  // namespace

void fill_identity(ring::RingHeader& header) noexcept {
  header.pid = static_cast<uint32_t>(::getpid());
  header.process_start_ticks = start_ticks();
  struct stat info {};
  if (::stat("/proc/self/ns/pid", &info) == 0) header.pid_namespace = info.st_ino;
  read_text("/proc/sys/kernel/random/boot_id", header.boot_id);
  ::gethostname(header.host, sizeof header.host - 1);
  header.start_ns = header.heartbeat_ns = now_ns();
}

}  // namespace tidemark::injector
