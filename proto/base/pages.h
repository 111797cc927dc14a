// Zeroed memory straight from the kernel: no malloc, which belongs to the host when this runs
// inside one. Untouched pages cost nothing, and nothing stays in a heap afterwards.
#pragma once

#include <sys/mman.h>

#include <cstddef>

namespace tidemark {

// nullptr when there is none.
inline void* map_pages(size_t bytes) noexcept {
  void* const p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

inline void unmap_pages(void* p, size_t bytes) noexcept {
  if (p != nullptr) ::munmap(p, bytes);
}

// An array in pages of its own, of a type that zeros are a value of and that has no destructor.
template <typename T>
class PageArray {
 public:
  PageArray() = default;
  PageArray(const PageArray&) = delete;
  PageArray& operator=(const PageArray&) = delete;
  ~PageArray() { unmap_pages(data_, capacity_ * sizeof(T)); }

  // Room for so many, what is there already included. False when memory is short.
  bool reserve(size_t count) noexcept {
    if (count <= capacity_) return true;
    void* const grown = data_ == nullptr ? map_pages(count * sizeof(T))
                                         : ::mremap(data_, capacity_ * sizeof(T), count * sizeof(T),
                                                    MREMAP_MAYMOVE);
    if (grown == nullptr || grown == MAP_FAILED) return false;
    data_ = static_cast<T*>(grown);
    capacity_ = count;
    return true;
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
