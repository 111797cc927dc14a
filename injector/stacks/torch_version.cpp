#include "injector/stacks/torch_version.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tidemark::injector {
namespace {

bool read_text(const char* folder, const char* name, char* text, size_t capacity) {
  char path[PATH_MAX];
  if (std::snprintf(path, sizeof path, "%s/%s", folder, name) >= static_cast<int>(sizeof path)) {
    return false;
  }
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t size = ::read(file, text, capacity - 1);
  ::close(file);
  text[size > 0 ? size : 0] = '\0';
  return size > 0;
}

int read_number(const char*& at) {
  int number = 0;
  for (; *at >= '0' && *at <= '9' && number < 1000; ++at) number = number * 10 + (*at - '0');
  return number;
}

}  // namespace

TorchVersion parse_torch_version(const char* text) noexcept {
  TorchVersion version;
  text += std::strspn(text, " '\"");
  version.major = read_number(text);
  if (*text != '.') return {};
  const char* const digits = ++text;
  version.minor = read_number(text);
  return text != digits ? version : TorchVersion();
}

TorchVersion read_torch_version(const char* library) noexcept {
  char folder[PATH_MAX];
  if (::realpath(library, folder) == nullptr) return {};
  for (int up = 0; up < 2; ++up) {  // …/torch/lib/libtorch_cpu.so
    char* const slash = std::strrchr(folder, '/');
    if (slash == nullptr) return {};
    *slash = '\0';
  }
  char text[4096];
  if (read_text(folder, "version.py", text, sizeof text)) {
    constexpr char kAssignment[] = "__version__ =";
    const char* const found = std::strstr(text, kAssignment);
    if (found != nullptr) return parse_torch_version(found + sizeof kAssignment - 1);
  }
  return read_text(folder, "build-version", text, sizeof text) ? parse_torch_version(text)
                                                               : TorchVersion();
}

}  // namespace tidemark::injector
