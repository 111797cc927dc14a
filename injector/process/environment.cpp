#include "injector/process/environment.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "proto/base/pages.h"

extern char** environ;

namespace tidemark::injector {
namespace {

// Entries, each terminated by a zero; an empty entry ends the list. Never freed: other threads may
// be reading it.
std::atomic<const char*> g_kept{nullptr};

constexpr size_t kLargest = 4 << 20;  // more than the system passes to a process

const char* copy_of(char** entries) {
  size_t bytes = 1;
  for (char** entry = entries; *entry != nullptr; ++entry) bytes += std::strlen(*entry) + 1;
  auto* const copy = static_cast<char*>(bytes <= kLargest ? map_pages(bytes) : nullptr);
  if (copy == nullptr) return nullptr;
  char* at = copy;
  for (char** entry = entries; *entry != nullptr; ++entry) {
    const size_t size = std::strlen(*entry) + 1;
    if (size == 1) continue;  // would end the list
    if (at + size + 1 > copy + bytes) break;
    std::memcpy(at, *entry, size);
    at += size;
  }
  return copy;
}

// The environment that the process was started with; "" if it cannot be read.
const char* first_environment() {
  const int fd = ::open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  auto* const copy = static_cast<char*>(map_pages(kLargest));
  size_t size = 0;
  while (copy != nullptr && size < kLargest - 2) {
    const ssize_t n = ::read(fd, copy + size, kLargest - 2 - size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    size += static_cast<size_t>(n);
  }
  ::close(fd);
  return copy != nullptr ? copy : "";
}

const char* kept() {
  const char* entries = g_kept.load(std::memory_order_acquire);
  if (entries != nullptr) return entries;
  const char* const first = first_environment();
  return g_kept.compare_exchange_strong(entries, first) ? first : entries;
}

}  // namespace

void keep_environment() noexcept {
  if (environ != nullptr) g_kept.store(copy_of(environ), std::memory_order_release);
}

const char* process_environment(const char* name) noexcept {
  const size_t size = std::strlen(name);
  for (const char* entry = kept(); *entry != '\0'; entry += std::strlen(entry) + 1) {
    if (std::strncmp(entry, name, size) == 0 && entry[size] == '=') return entry + size + 1;
  }
  return nullptr;
}

void each_variable(void (*visit)(const char* entry, void* context), void* context) noexcept {
  for (const char* entry = kept(); *entry != '\0'; entry += std::strlen(entry) + 1) {
    visit(entry, context);
  }
}

}  // namespace tidemark::injector
