#include "collector/attach/inject/library_copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "proto/base/descriptor.h"

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

// While it lives, this thread reads and creates files as another user. Only root can; for others
// nothing changes. So root can do nothing here that the process could not do itself, whatever it
// puts in the way: links, mounts, folders of others.
class FilesAs {
 public:
  FilesAs(uid_t user, gid_t group) : group_(::setfsgid(group)), user_(::setfsuid(user)) {}
  ~FilesAs() {
    ::setfsuid(static_cast<uid_t>(user_));
    ::setfsgid(static_cast<gid_t>(group_));
  }
  FilesAs(const FilesAs&) = delete;
  FilesAs& operator=(const FilesAs&) = delete;

 private:
  int group_;
  int user_;
};

// Links are resolved as the process sees them. Through /proc/PID/root/tmp an absolute one would
// lead out of a container.
int open_tmp(int root) {
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  const long fd = ::syscall(__NR_openat2, root, "tmp", &how, sizeof how);
  // Before Linux 5.6, or forbidden by a container: no link is followed.
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return static_cast<int>(fd);
  return ::openat(root, "tmp", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// A folder that only the user can write to.
int open_folder(int tmp, const std::string& name, uid_t user) {
  if (::mkdirat(tmp, name.c_str(), 0700) != 0 && errno != EEXIST) return -1;
  const int fd = ::openat(tmp, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat info {};
  if (fd < 0 || (::fstat(fd, &info) == 0 && info.st_uid == user &&
                 (info.st_mode & (S_IWGRP | S_IWOTH)) == 0)) {
    return fd;
  }
  ::close(fd);
  errno = EPERM;
  return -1;
}

}  // namespace

Result<std::string> copy_library(pid_t pid, uid_t user, const std::string& library) {
  const std::string process = fmt::format("/proc/{}", pid);
  const std::string own_name = fmt::format("tidemark-{}", user);
  const std::string seen_folder = "/tmp/" + own_name;
  const std::string folder = process + "/root" + seen_folder;  // for messages
  const Descriptor from(::open(library.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (from.get() < 0 || ::fstat(from.get(), &info) != 0) return failed(library);
  const Descriptor root(::open((process + "/root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat owner {};
  if (root.get() < 0 || ::stat(process.c_str(), &owner) != 0) return failed(folder);

  const FilesAs its_user(user, owner.st_gid);
  const Descriptor tmp(open_tmp(root.get()));
  if (tmp.get() < 0) return failed(folder);
  const Descriptor place(open_folder(tmp.get(), own_name, user));
  if (place.get() < 0) return failed(folder);
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
  if (copy(from.get(), to.get(), info.st_size) &&
      ::renameat(place.get(), fresh.c_str(), place.get(), name.c_str()) == 0) {
    return seen;
  }
  const Error error = failed(folder);
  ::unlinkat(place.get(), fresh.c_str(), 0);
  return error;
}

}  // namespace tidemark::inject
