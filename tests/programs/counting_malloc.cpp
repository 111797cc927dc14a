// An allocator to preload, like jemalloc and tcmalloc: it wraps glibc's, protects itself against
// recursive calls, and fails when something is freed that it did not allocate.
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

extern "C" {
void* __libc_malloc(size_t size);
void __libc_free(void* pointer);
void* __libc_memalign(size_t alignment, size_t size);

namespace {
constexpr uint64_t kMagic = 0x7464656d61726b21;
struct Head {
  uint64_t magic;
  void* base;
  size_t size;
  uint64_t unused;
};

void* with_head(void* base, size_t alignment, size_t size) {
  if (base == nullptr) return nullptr;
  char* const content = static_cast<char*>(base) + alignment;
  const Head head{kMagic, base, size, 0};
  std::memcpy(content - sizeof head, &head, sizeof head);
  return content;
}

Head head_of(void* pointer) {
  Head head;
  std::memcpy(&head, static_cast<char*>(pointer) - sizeof head, sizeof head);
  if (head.magic != kMagic) __builtin_trap();
  return head;
}

void* aligned(size_t alignment, size_t size) {
  if (alignment < sizeof(Head)) alignment = sizeof(Head);
  return with_head(__libc_memalign(alignment, alignment + size), alignment, size);
}
}  // namespace

void* malloc(size_t size) {
  return with_head(__libc_malloc(sizeof(Head) + size), sizeof(Head), size);
}

void free(void* pointer) {
  if (pointer == nullptr) return;
  const Head head = head_of(pointer);
  std::memset(pointer, 0xdd, head.size);
  std::memset(static_cast<char*>(pointer) - sizeof head, 0, sizeof head);
  __libc_free(head.base);
}

void* calloc(size_t count, size_t size) {
  if (size != 0 && count > SIZE_MAX / size) return nullptr;
  void* const pointer = malloc(count * size);
  if (pointer != nullptr) std::memset(pointer, 0, count * size);
  return pointer;
}

void* realloc(void* pointer, size_t size) {
  if (pointer == nullptr) return malloc(size);
  const size_t before = head_of(pointer).size;
  void* const moved = malloc(size);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, pointer, before < size ? before : size);
  free(pointer);
  return moved;
}

void* memalign(size_t alignment, size_t size) {
  return aligned(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  return aligned(alignment, size);
}
void* valloc(size_t size) {
  return aligned(4096, size);
}
void* pvalloc(size_t size) {
  return aligned(4096, (size + 4095) & ~size_t{4095});
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  *out = aligned(alignment, size);
  return *out == nullptr ? ENOMEM : 0;
}
size_t malloc_usable_size(void* pointer) {
  return pointer == nullptr ? 0 : head_of(pointer).size;
}
}
