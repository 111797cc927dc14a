#include "injector/process/file_system.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

namespace tidemark::injector {
namespace {

// From linux/magic.h and the file systems' own sources.
constexpr uint64_t kNetworkTypes[] = {
    0x6969,      // NFS
    0x0BD00BD0,  // Lustre
    0x47504653,  // GPFS, Spectrum Scale
    0x517B,      // SMB
    0xFF534D42,  // CIFS
    0xFE534D42,  // SMB 2
    0x65735546,  // FUSE: sshfs, gcsfuse, s3fs, GlusterFS, virtiofs, …
    0x00C36400,  // Ceph
    0x19830326,  // BeeGFS
    0x01021997,  // 9P
    0x20030528,  // OrangeFS
    0x5346414F,  // AFS
    0x6B414653,  // kAFS
    0x73757245,  // Coda
    0x01161970,  // GFS2
    0x7461636F,  // OCFS2
    0xAAD7AAEA,  // PanFS
};

}  // namespace

bool is_network_file_system(uint64_t type) noexcept {
  // f_type is signed and 32 bits wide on some architectures.
  return std::find(std::begin(kNetworkTypes), std::end(kNetworkTypes), type & 0xFFFFFFFF) !=
         std::end(kNetworkTypes);
}

bool on_network_file_system(const char* directory) noexcept {
  struct statfs info {};
  return ::statfs(directory, &info) == 0 &&
         is_network_file_system(static_cast<uint64_t>(info.f_type));
}

int move_descriptor_up(int fd) noexcept {
  // Higher numbers would make the table of descriptors larger, which fork() copies.
  constexpr rlim_t kTop = 1024;
  constexpr rlim_t kRange = 64;
  rlimit limit{};
  if (fd < 0 || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return fd;
  const rlim_t top = std::min(limit.rlim_cur, kTop);
  if (top < 2 * kRange) return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, static_cast<int>(top - kRange));
  if (moved < 0) return fd;
  ::close(fd);
  return moved;
}

uint64_t free_bytes_in(const char* directory) noexcept {
  struct statfs info {};
  if (::statfs(directory, &info) != 0) return 0;
  return static_cast<uint64_t>(info.f_bavail) * static_cast<uint64_t>(info.f_bsize);
}

}  // namespace tidemark::injector
