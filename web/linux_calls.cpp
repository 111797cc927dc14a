// Linux calls that Emscripten's libc lacks or answers differently. Files of a page are in memory.
#include <emscripten/heap.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

extern "C" {

// It has a name, since Emscripten's fstat() asks for it; worker.js removes it when it is read.
int memfd_create(const char*, unsigned) {
  char path[] = "/tmp/tidemark-XXXXXX";
  return ::mkstemp(path);
}

void* mremap(void* old, size_t old_bytes, size_t bytes, int, ...) {
  void* const fresh =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return fresh;
  std::memcpy(fresh, old, std::min(old_bytes, bytes));
  ::munmap(old, old_bytes);
  return fresh;
}

// No index is written on a page.
int fallocate(int, int, off_t, off_t) {
  errno = ENOSYS;
  return -1;
}
int sync_file_range(int, off_t, off_t, unsigned) {
  errno = ENOSYS;
  return -1;
}

// Emscripten's own says how large the heap is now, not how large it may become.
long sysconf(int name) {
  constexpr size_t kPage = 65536;
  if (name == _SC_PAGESIZE) return kPage;
  if (name == _SC_PHYS_PAGES) return static_cast<long>(emscripten_get_heap_max() / kPage);
  errno = EINVAL;
  return -1;
}

}  // extern "C"
