#include "injector/recorder/ring_arena.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "injector/process/file_system.h"
#include "injector/process/mapping_guard.h"
#include "injector/process/process_identity.h"
#include "proto/base/pages.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older kernels return EINVAL
#endif

namespace tidemark::injector {

namespace {

constexpr uint64_t kSmallArena = 16U << 20;
constexpr uint32_t kPopulateStep = 16;  // chunks

// A write lock on the first byte. A record lock is released with its process or its descriptor, is
// not inherited by a forked child, and is visible from other pid namespaces and over NFS.
void lock_first_byte(int fd) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  static_cast<void>(::fcntl(fd, F_SETLK, &lock));  // without it recovery relies on the pid alone
}

// Opens a file that gets its name when it is complete: a process killed in between leaves no file.
// -1 if the file system does not support this; then the file is created with its name.
int open_nameless(const char* path) {
  char directory[PATH_MAX];
  const char* const slash = std::strrchr(path, '/');
  const auto size = static_cast<size_t>(slash == nullptr ? 0 : slash - path);
  if (size == 0 || size >= sizeof directory || ::access("/proc/self/fd", X_OK) != 0) return -1;
  std::memcpy(directory, path, size);
  directory[size] = '\0';
  return ::open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

bool give_name(int fd, const char* path) {
  char self[64];
  snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
  return ::linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0;
}

}  // namespace

bool too_large_for_disk(int error_number) noexcept {
  return error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
}

bool RingArena::create(const char* path, uint64_t bytes) noexcept {
  // A few large chunks are cheapest; a small ring needs enough chunks for many threads.
  chunk_bytes_ = bytes < kSmallArena ? ring::kMinChunkBytes : ring::kMaxChunkBytes;
  chunk_count_ = static_cast<uint32_t>(bytes / chunk_bytes_);
  total_bytes_ = ring::chunks_offset(chunk_count_) + uint64_t{chunk_count_} * chunk_bytes_;

  if (const int nameless = open_nameless(path); nameless >= 0) {
    if (prepare(nameless) && give_name(nameless, path)) return keep(nameless);
    const int error = errno;
    unmap();
    ::close(nameless);
    errno = error;
    if (too_large_for_disk(error)) return false;
  }
  const int fd = ::open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  if (prepare(fd)) return keep(fd);
  const int error = errno;
  unmap();
  ::unlink(path);
  ::close(fd);
  errno = error;
  return false;
}

bool RingArena::prepare(int fd) noexcept {
  return reserve_file(fd, total_bytes_) && map(fd, total_bytes_) && link_free_list();
}

bool RingArena::keep(int fd) noexcept {
  struct stat info {};
  fd = move_descriptor_up(fd);
  static_cast<void>(::fstat(fd, &info));
  lock_first_byte(fd);
  lock_fd_ = fd;
  lock_device_ = info.st_dev;
  lock_inode_ = info.st_ino;
  return true;
}

bool RingArena::reserve_file(int fd, uint64_t bytes) noexcept {
  // The header is written first: from then on the file says which process it belongs to.
  ring::RingHeader header{};
  header.magic = ring::kMagic;
  header.version = ring::kVersion;
  header.layout = ring::kLayout;
  header.total_bytes = bytes;
  header.chunks_offset = ring::chunks_offset(chunk_count_);
  header.chunk_bytes = chunk_bytes_;
  header.chunk_count = chunk_count_;
  fill_identity(header);
  if (::pwrite(fd, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header)) {
    if (errno == 0) errno = ENOSPC;
    return false;
  }
  errno = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  return errno == 0;
}

bool RingArena::map(int fd, uint64_t bytes) noexcept {
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return false;
  static_cast<void>(guard_mapping(base, bytes, lost_));
  auto* const p = static_cast<uint8_t*>(base);
  header_ = reinterpret_cast<ring::RingHeader*>(p);
  controls_ = reinterpret_cast<ring::ChunkControl*>(p + ring::controls_offset());
  for (uint32_t slot = 0; slot < 2; ++slot) {
    released_[slot] = reinterpret_cast<uint64_t*>(p + ring::released_offset(chunk_count_, slot));
  }
  chunks_ = p + ring::chunks_offset(chunk_count_);
  return true;
}

bool RingArena::link_free_list() noexcept {
  next_ = static_cast<std::atomic<uint32_t>*>(map_pages(chunk_count_ * sizeof *next_));
  if (next_ == nullptr) return false;
  for (uint32_t i = 0; i < chunk_count_; ++i) {
    next_[i].store(i + 1 < chunk_count_ ? i + 1 : kNoChunk, std::memory_order_relaxed);
  }
  free_.store(chunk_count_, std::memory_order_relaxed);
  head_.store(0, std::memory_order_release);
  populate_ahead();
  return true;
}

void RingArena::set_live() noexcept {
  std::atomic_ref(header_->state)
      .store(static_cast<uint32_t>(ring::RingState::kLive), std::memory_order_release);
}

uint32_t RingArena::take() noexcept {
  uint64_t head = head_.load(std::memory_order_acquire);
  uint64_t below = 0;
  do {
    if (static_cast<uint32_t>(head) == kNoChunk) return kNoChunk;
    // May be stale if another thread was faster; the tag then makes the exchange fail.
    const uint32_t next = next_[static_cast<uint32_t>(head)].load(std::memory_order_relaxed);
    below = (((head >> 32) + 1) << 32) | next;
  } while (!head_.compare_exchange_weak(head, below, std::memory_order_acq_rel,
                                        std::memory_order_acquire));
  free_.fetch_sub(1, std::memory_order_relaxed);
  raise_high_water(static_cast<uint32_t>(head));
  return static_cast<uint32_t>(head);
}

void RingArena::give_back(uint32_t chunk) noexcept {
  uint64_t head = head_.load(std::memory_order_relaxed);
  uint64_t above = 0;
  do {
    next_[chunk].store(static_cast<uint32_t>(head), std::memory_order_relaxed);
    above = (((head >> 32) + 1) << 32) | chunk;
  } while (!head_.compare_exchange_weak(head, above, std::memory_order_release,
                                        std::memory_order_relaxed));
  free_.fetch_add(1, std::memory_order_relaxed);
}

void RingArena::raise_high_water(uint32_t chunk) noexcept {
  uint32_t seen = high_water_.load(std::memory_order_relaxed);
  while (seen <= chunk &&
         !high_water_.compare_exchange_weak(seen, chunk + 1, std::memory_order_release,
                                            std::memory_order_relaxed)) {
  }
}

void RingArena::populate_ahead() noexcept {
  const uint32_t wanted = std::min(high_water() + kPopulateStep, chunk_count_);
  if (wanted <= populated_) return;
  const uint32_t end = std::min(populated_ + 2 * kPopulateStep, chunk_count_);
  static_cast<void>(::madvise(chunk(populated_), uint64_t{end - populated_} * chunk_bytes_,
                              MADV_POPULATE_WRITE));  // only an optimisation, may fail
  populated_ = end;
}

void RingArena::discard() noexcept {
  // The file has no name any more. Mapping empty memory at the same address releases the file; if
  // that fails, punching a hole frees its blocks and pages.
  const uint64_t bytes = uint64_t{chunk_count_} * chunk_bytes_;
  unguard_mapping(header_);
  if (::mmap(header_, total_bytes_, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED) {
    return;
  }
  if (::madvise(chunks_, bytes, MADV_REMOVE) != 0) ::madvise(chunks_, bytes, MADV_DONTNEED);
}

void RingArena::unmap() noexcept {
  unguard_mapping(header_);
  unmap_pages(header_, total_bytes_);
  unmap_pages(next_, chunk_count_ * sizeof *next_);
  header_ = nullptr;
  next_ = nullptr;
  populated_ = 0;
}

void RingArena::unlock() noexcept {
  struct stat info {};
  // The host may have closed the descriptor and reused its number for a file of its own.
  if (lock_fd_ >= 0 && ::fstat(lock_fd_, &info) == 0 && info.st_dev == lock_device_ &&
      info.st_ino == lock_inode_) {
    ::close(lock_fd_);
  }
  lock_fd_ = -1;
}

}  // namespace tidemark::injector
