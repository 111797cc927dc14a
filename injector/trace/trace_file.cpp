#include "injector/trace/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "injector/process/file_system.h"

namespace tidemark::injector {

namespace {

// Not fstat() and write(): the thread sanitizer knows these, and reports it when the host closes
// the descriptor meanwhile, which is what this file is written for.
bool stat_of(int fd, struct stat& info) {
  return ::fstatat(fd, "", &info, AT_EMPTY_PATH) == 0;
}
long write_some(int fd, std::span<const uint8_t> bytes) {
  return ::syscall(SYS_write, fd, bytes.data(), bytes.size());
}

}  // namespace

bool TraceFile::create(const char* path) noexcept {
  const int fd = move_descriptor_up(
      ::open(path, O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (fd < 0) return false;
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    ::close(fd);
    return false;
  }
  path_ = path;
  fd_ = fd;
  device_ = info.st_dev;
  inode_ = info.st_ino;
  return true;
}

bool TraceFile::is_ours() const noexcept {
  struct stat info {};
  return fd_ >= 0 && stat_of(fd_, info) && info.st_dev == device_ && info.st_ino == inode_;
}

bool TraceFile::make_sure() noexcept {
  if (is_ours()) return true;
  fd_ = move_descriptor_up(::open(path_, O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC));
  if (fd_ < 0) return false;
  if (is_ours()) return true;
  ::close(fd_);
  fd_ = -1;
  errno = ESTALE;  // another file has this name now
  return false;
}

bool TraceFile::write(std::span<const uint8_t> bytes) noexcept {
  while (!bytes.empty()) {
    if (!make_sure()) return false;
    const long n = write_some(fd_, bytes);
    if (n < 0) {
      if (errno == EINTR || errno == EBADF) continue;  // EBADF: closed since the check
      return false;
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

bool TraceFile::read(uint64_t offset, std::span<uint8_t> out) noexcept {
  while (!out.empty()) {
    if (!make_sure()) return false;
    const long n = ::syscall(SYS_pread64, fd_, out.data(), out.size(), offset);
    if (n < 0 && (errno == EINTR || errno == EBADF)) continue;
    if (n <= 0) return false;
    out = out.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return true;
}

bool TraceFile::rename_to(const char* path) noexcept {
  if (::rename(path_, path) != 0) return false;
  path_ = path;
  return true;
}

void TraceFile::swap(TraceFile& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
}

bool TraceFile::cut(uint64_t size) noexcept {
  return make_sure() && ::ftruncate(fd_, static_cast<off_t>(size)) == 0;
}

void TraceFile::close() noexcept {
  if (is_ours()) ::close(fd_);
  fd_ = -1;
}

}  // namespace tidemark::injector
