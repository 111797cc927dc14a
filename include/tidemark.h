/* tidemark.h: a program says what it does, and tidemark shows it next to the memory.
 *
 * For C (GNU 99, or C99 with _POSIX_C_SOURCE) and C++, on Linux, with GCC or Clang. Nothing to link
 * (before glibc 2.34: -ldl). The calls work when libtidemark.so is in the process (`tidemark run`,
 * `tidemark attach`) and records; at any other time they return at once. They are safe on any
 * thread.
 *
 *   uint64_t range = tidemark_range_begin("validation");
 *   ...
 *   tidemark_range_end(range);
 *   tidemark_step(n);                    at the end of each step
 *   tidemark_name(cache, "kv cache");    after cache was allocated
 *
 * The functions are looked up rather than declared weak: the CUDA driver loads libtidemark.so when
 * it is initialised, and a weak reference is resolved before that, to nothing.
 */
#ifndef TIDEMARK_H
#define TIDEMARK_H

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tidemark_functions {
  uint64_t (*range_begin)(const char*);
  void (*range_end)(uint64_t);
  void (*mark)(const char*);
  void (*step)(uint64_t);
  void (*name)(const void*, const char*);
};

static inline int tidemark_find(void* library, const char* name, void* function) {
  void* const found = dlsym(library, name);
  memcpy(function, &found, sizeof found); /* C has no cast from void* to a function */
  return found != NULL;
}

/* NULL while the library is not loaded. It may come at any time, and looking for it searches the
 * library path, so this happens at most ten times per second. */
static inline const struct tidemark_functions* tidemark_library(void) {
  static struct tidemark_functions functions;
  static int state; /* 0: not found yet; 1: a thread is looking; 2: found */
  static int64_t next_ms;
  struct timespec now;
  int64_t now_ms;
  int expected = 0;
  void* library;
  if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == 2) return &functions;
  clock_gettime(CLOCK_MONOTONIC, &now);
  now_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
  if (now_ms < __atomic_load_n(&next_ms, __ATOMIC_RELAXED)) return NULL;
  if (!__atomic_compare_exchange_n(&state, &expected, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
    return expected == 2 ? &functions : NULL;
  }
  library = dlopen("libtidemark.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library != NULL && tidemark_find(library, "tidemark_range_begin", &functions.range_begin) &&
      tidemark_find(library, "tidemark_range_end", &functions.range_end) &&
      tidemark_find(library, "tidemark_mark", &functions.mark) &&
      tidemark_find(library, "tidemark_step", &functions.step) &&
      tidemark_find(library, "tidemark_name", &functions.name)) {
    __atomic_store_n(&state, 2, __ATOMIC_RELEASE);
    return &functions;
  }
  __atomic_store_n(&next_ms, now_ms + 100, __ATOMIC_RELAXED);
  __atomic_store_n(&state, 0, __ATOMIC_RELEASE);
  return NULL;
}

/* Begins a range; ranges may overlap. Returns what tidemark_range_end takes. */
static inline uint64_t tidemark_range_begin(const char* name) {
  const struct tidemark_functions* const library = tidemark_library();
  return library != NULL ? library->range_begin(name) : 0;
}

/* Ends a range, on any thread. */
static inline void tidemark_range_end(uint64_t range) {
  const struct tidemark_functions* const library = tidemark_library();
  if (library != NULL) library->range_end(range);
}

/* Marks this instant. */
static inline void tidemark_mark(const char* name) {
  const struct tidemark_functions* const library = tidemark_library();
  if (library != NULL) library->mark(name);
}

/* Step `number` ends here. The report counts memory per step by these marks. */
static inline void tidemark_step(uint64_t number) {
  const struct tidemark_functions* const library = tidemark_library();
  if (library != NULL) library->step(number);
}

/* Labels the allocation that begins at `address`, until it is freed. */
static inline void tidemark_name(const void* address, const char* label) {
  const struct tidemark_functions* const library = tidemark_library();
  if (library != NULL) library->name(address, label);
}

#ifdef __cplusplus
}
#endif

#endif
