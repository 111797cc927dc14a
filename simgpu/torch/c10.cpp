// libc10.so: the functions that allocators report to.
#include <cstddef>
#include <cstdint>

#include <c10/cuda/CUDACachingAllocator.h>

namespace c10 {

__attribute__((visibility("default"))) void reportMemoryUsageToProfiler(void*, int64_t, size_t,
                                                                        size_t, Device) {}
__attribute__((visibility("default"))) void reportOutOfMemoryToProfiler(int64_t, size_t, size_t,
                                                                        Device) {}

}  // namespace c10
