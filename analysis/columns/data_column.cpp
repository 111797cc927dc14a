#include "analysis/columns/data_column.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

namespace tidemark {

namespace {

// A file doubles up to this size, then grows in steps of it; about as much of its end stays
// resident. A job of hundreds of ranks has thousands of columns, most of them small.
constexpr size_t kFileStep = size_t{8} << 20;
constexpr size_t kFirstStep = size_t{64} << 10;
// A device has some twenty columns, and a job may have thousands of devices with few events.
constexpr size_t kFirstInMemory = 256;
// Releasing less is not worth the call.
constexpr size_t kLeastReleased = size_t{64} << 10;

size_t whole_pages(size_t bytes) {
  static const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return bytes / page * page;
}

std::byte* mapped(void* address) {
  return address == MAP_FAILED ? nullptr : static_cast<std::byte*>(address);
}

}  // namespace

ColumnBytes::~ColumnBytes() {
  if (in_file_) {
    if (data_ != nullptr) ::munmap(data_, capacity_);
  } else {
    std::free(data_);
  }
  if (fd_ >= 0) ::close(fd_);
}

void ColumnBytes::swap(ColumnBytes& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(capacity_, other.capacity_);
  std::swap(fd_, other.fd_);
  std::swap(in_file_, other.in_file_);
}

bool ColumnBytes::create_file(const std::string& path) {
  if (data_ != nullptr) return false;
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  in_file_ = fd_ >= 0;
  return in_file_;
}

bool ColumnBytes::map_file(const std::string& path, size_t size) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat info {};
  const bool fits = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                    static_cast<uint64_t>(info.st_size) == size;
  if (fits && size != 0) data_ = mapped(::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0));
  ::close(fd);
  if (!fits || (size != 0 && data_ == nullptr)) return false;
  capacity_ = size;
  in_file_ = true;
  return true;
}

bool ColumnBytes::grow_file(size_t needed, size_t used) {
  // Preallocated: writing to a mapped page for which the disk has no space would kill the program.
  if (::fallocate(fd_, 0, 0, static_cast<off_t>(needed)) != 0) return false;
  std::byte* grown = nullptr;
  if (data_ == nullptr) {
    grown = mapped(::mmap(nullptr, needed, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
  } else {
    grown = mapped(::mremap(data_, capacity_, needed, MREMAP_MAYMOVE));
  }
  if (grown == nullptr) return false;
  data_ = grown;
  capacity_ = needed;
  if (used > kFileStep) release_pages(used - kFileStep);
#ifdef MADV_POPULATE_WRITE
  // One call instead of a page fault for each page. An older kernel does not know it.
  const size_t present = whole_pages(used);
  ::madvise(data_ + present, needed - present, MADV_POPULATE_WRITE);
#endif
  return true;
}

void ColumnBytes::leave_file(size_t needed, size_t used) {
  auto* copy = static_cast<std::byte*>(std::malloc(needed));
  if (copy == nullptr) throw std::bad_alloc();
  if (used != 0) std::memcpy(copy, data_, used);
  if (data_ != nullptr) ::munmap(data_, capacity_);
  ::close(fd_);
  fd_ = -1;
  in_file_ = false;
  data_ = copy;
  capacity_ = needed;
}

void ColumnBytes::reserve(size_t needed, size_t used) {
  if (needed <= capacity_) return;
  if (in_file_) {
    const size_t step = std::clamp(std::bit_ceil(needed), kFirstStep, kFileStep);
    const size_t wanted = (needed + step - 1) / step * step;
    if (!grow_file(wanted, used)) leave_file(wanted, used);
    return;
  }
  // Large blocks grow by remapping pages, not copying bytes, so growing by half is fast enough.
  const size_t wanted = std::max({needed, capacity_ + capacity_ / 2, kFirstInMemory});
  auto* grown = static_cast<std::byte*>(std::realloc(data_, wanted));
  if (grown == nullptr) throw std::bad_alloc();
  data_ = grown;
  capacity_ = wanted;
}

bool ColumnBytes::finish_file(size_t used) {
  if (!in_file_ || fd_ < 0) return false;
  const bool written = ::ftruncate(fd_, static_cast<off_t>(used)) == 0;
  ::close(fd_);
  fd_ = -1;
  if (data_ != nullptr) ::mprotect(data_, capacity_, PROT_READ);
  return written;
}

void ColumnBytes::release_pages(size_t bytes) const {
  const size_t whole = whole_pages(bytes);
  if (in_file_ && whole >= kLeastReleased) ::madvise(data_, whole, MADV_DONTNEED);
}

}  // namespace tidemark
