#include "injector/stacks/torch_version.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bridge/torch_place.h"

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

// Debian's libtorch_cpu.so.2.6.0; the package for C++ has no version.py.
TorchVersion version_in_name(const char* path) {
  const char* const ending = std::strstr(std::strrchr(path, '/'), ".so.");
  return ending != nullptr ? parse_torch_version(ending + std::strlen(".so.")) : TorchVersion();
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
  char file[PATH_MAX];
  char folder[PATH_MAX];
  if (::realpath(library, file) == nullptr) return {};
  if (!bridge::find_torch_folder(file, folder)) return version_in_name(file);
  char text[4096];
  if (read_text(folder, "version.py", text, sizeof text)) {
    constexpr char kAssignment[] = "__version__ =";
    const char* const found = std::strstr(text, kAssignment);
    if (found != nullptr) return parse_torch_version(found + sizeof kAssignment - 1);
  }
  return read_text(folder, "build-version", text, sizeof text) ? parse_torch_version(text)
                                                               : version_in_name(file);
}

}  // namespace tidemark::injector
