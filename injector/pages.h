// Zeroed memory straight from the kernel: no malloc, which belongs to the host. Untouched pages
// cost nothing.
#pragma once

#include <sys/mman.h>

#include <cstddef>

namespace tidemark::injector {

// nullptr when there is none.
inline void* map_pages(size_t bytes) noexcept {
  void* const p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

inline void unmap_pages(void* p, size_t bytes) noexcept {
  if (p != nullptr) ::munmap(p, bytes);
}

}  // namespace tidemark::injector
