// Zeroed memory directly from the kernel. Not malloc, which belongs to the host process when this
// runs inside one. Untouched pages cost nothing, and no heap keeps the memory afterwards.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <utility>

namespace tidemark {

// nullptr if out of memory.
inline void* map_pages(size_t bytes) noexcept {
  void* const p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

inline void unmap_pages(void* p, size_t bytes) noexcept {
  if (p != nullptr) ::munmap(p, bytes);
}

// Keeps the contents. nullptr if out of memory; then the old pages are as they were.
inline void* grow_pages(void* p, size_t bytes, size_t more) noexcept {
#if defined(__SANITIZE_THREAD__)
  // ThreadSanitizer does not notice mremap and takes the pages for those of a previous owner.
  void* const grown = map_pages(more);
  if (grown == nullptr) return nullptr;
  std::memcpy(grown, p, bytes);
  unmap_pages(p, bytes);
  return grown;
#else
  void* const grown = ::mremap(p, bytes, more, MREMAP_MAYMOVE);
  return grown == MAP_FAILED ? nullptr : grown;
#endif
}

// An array in separate pages, of a type for which all zeros is a valid value and that has no
// destructor.
template <typename T>
class PageArray {
 public:
  PageArray() = default;
  PageArray(const PageArray&) = delete;
  PageArray& operator=(const PageArray&) = delete;
  ~PageArray() { unmap_pages(data_, capacity_ * sizeof(T)); }

  // Grows the capacity to `count` elements; keeps the contents. False if out of memory.
  bool reserve(size_t count) noexcept {
    if (count <= capacity_) return true;
    void* const grown = data_ == nullptr
                            ? map_pages(count * sizeof(T))
                            : grow_pages(data_, capacity_ * sizeof(T), count * sizeof(T));
    if (grown == nullptr) return false;
    data_ = static_cast<T*>(grown);
    capacity_ = count;
    return true;
  }
  void swap(PageArray& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(capacity_, other.capacity_);
  }
  size_t capacity() const noexcept { return capacity_; }
  T* get() const noexcept { return data_; }
  T& operator[](size_t i) const noexcept { return data_[i]; }
  bool empty() const noexcept { return data_ == nullptr; }

 private:
  T* data_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace tidemark
