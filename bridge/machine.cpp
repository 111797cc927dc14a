#include "bridge/machine.h"

#include <gnu/libc-version.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "bridge/torch_place.h"

namespace tidemark::bridge {
namespace {

// The version of the system's libstdc++, from the name of the file that libstdc++.so.6 links to.
// Not that of this process: libtidemark.so and the command line have their own.
void find_stdcxx_version(const char* machine, char* out, size_t size) {
  static constexpr char kName[] = "libstdc++.so.";
  char multiarch[96];
  std::snprintf(multiarch, sizeof multiarch, "/usr/lib/%s-linux-gnu", machine);
  std::snprintf(out, size, "none");
  for (const char* folder : {static_cast<const char*>(multiarch), "/usr/lib64", "/usr/lib"}) {
    char path[PATH_MAX];
    char target[PATH_MAX];
    std::snprintf(path, sizeof path, "%s/libstdc++.so.6", folder);
    if (::realpath(path, target) == nullptr) continue;
    const char* const version = std::strstr(target, kName);
    if (version == nullptr) continue;
    std::snprintf(out, size, "%s", version + std::strlen(kName));
    return;
  }
}

}  // namespace

void describe_machine(char* out, size_t size) noexcept {
  utsname names{};
  ::uname(&names);
  char stdcxx[32];
  find_stdcxx_version(names.machine, stdcxx, sizeof stdcxx);
  std::snprintf(out, size, "%.32s-glibc%.16s-stdcxx%s", names.machine, ::gnu_get_libc_version(),
                stdcxx);
}

uint64_t machine_identity() noexcept {
  utsname names{};
  ::uname(&names);
  return mix_bytes(kHashBegin, names.nodename, std::strlen(names.nodename));
}

}  // namespace tidemark::bridge
