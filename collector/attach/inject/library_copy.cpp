#include "collector/attach/inject/library_copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "proto/base/descriptor.h"
#include "proto/control.h"

namespace tidemark::inject {

namespace {

Error failed(const std::string& path) {
  return Error{fmt::format("{}: {}", path, std::strerror(errno))};
}

bool copy(int from, int to, off_t bytes) {
  off_t done = 0;
  while (done < bytes) {
    if (::sendfile(to, from, &done, static_cast<size_t>(bytes - done)) <= 0) return false;
  }
  return true;
}

bool give_to(int fd, uid_t user) {
  return ::geteuid() == user || ::fchown(fd, user, gid_t(-1)) == 0;
}

}  // namespace

Result<std::string> copy_library(pid_t pid, uid_t user, const std::string& library) {
  const std::string seen_folder = fmt::format("/tmp/tidemark-{}", user);
  const std::string folder = fmt::format("/proc/{}/root{}", pid, seen_folder);
  if (::mkdir(folder.c_str(), 0700) == 0 && ::geteuid() != user &&
      ::lchown(folder.c_str(), user, gid_t(-1)) != 0) {
    return failed(folder);
  }
  const Descriptor place(control::open_directory(folder.c_str(), false, user));
  const Descriptor from(::open(library.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (place.get() < 0) return failed(folder);
  if (from.get() < 0 || ::fstat(from.get(), &info) != 0) return failed(library);

  const std::string name = fmt::format("libtidemark-{:x}-{:x}.so", info.st_size, info.st_mtime);
  const std::string seen = seen_folder + "/" + name;
  struct stat there {};
  if (::fstatat(place.get(), name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISREG(there.st_mode) && there.st_size == info.st_size) {
    return seen;
  }
  const std::string fresh = fmt::format("{}.{}", name, ::getpid());
  const Descriptor to(::openat(place.get(), fresh.c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0700));
  if (to.get() < 0) return failed(folder);
  if (copy(from.get(), to.get(), info.st_size) && give_to(to.get(), user) &&
      ::renameat(place.get(), fresh.c_str(), place.get(), name.c_str()) == 0) {
    return seen;
  }
  const Error error = failed(folder);
  ::unlinkat(place.get(), fresh.c_str(), 0);
  return error;
}

}  // namespace tidemark::inject
