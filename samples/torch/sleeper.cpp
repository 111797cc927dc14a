// An allocator for a torch.cuda.MemPool whose memory can sleep: sleeper_sleep() unmaps and releases
// all of it, sleeper_wake() maps new memory at the same addresses. What serving systems do with
// weights that are not needed for a while.
//
//   c++ -shared -fPIC -O1 -o sleeper.so sleeper.cpp
#include <dlfcn.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace {

struct Location {
  int type;
  int id;
};
struct AllocationProperties {  // CUmemAllocationProp
  int type;
  int handle_types;
  Location location;
  void* windows_attributes;
  unsigned char flags[8];
};
struct Access {  // CUmemAccessDesc
  Location location;
  int flags;
};

template <typename Function>
Function* driver(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  void* const found = library != nullptr ? dlsym(library, name) : nullptr;
  if (found == nullptr) std::abort();
  return reinterpret_cast<Function*>(found);
}

using Handle = unsigned long long;
using Address = unsigned long long;

struct Range {
  size_t size = 0;
  int device = 0;
  Handle handle = 0;  // 0: asleep
};
std::mutex g_lock;
std::map<Address, Range> g_ranges;

AllocationProperties properties(int device) {
  AllocationProperties p{};
  p.type = 1;                // pinned
  p.location = {1, device};  // on a device
  return p;
}

bool fill(Address address, Range& range) {
  const AllocationProperties p = properties(range.device);
  if (driver<int(Handle*, size_t, const AllocationProperties*, Handle)>("cuMemCreate")(
          &range.handle, range.size, &p, 0) != 0) {
    range.handle = 0;
    return false;
  }
  driver<int(Address, size_t, size_t, Handle, Handle)>("cuMemMap")(address, range.size, 0,
                                                                   range.handle, 0);
  const Access access{{1, range.device}, 3};  // read and write
  driver<int(Address, size_t, const Access*, size_t)>("cuMemSetAccess")(address, range.size,
                                                                        &access, 1);
  return true;
}

void empty(Address address, Range& range) {
  if (range.handle == 0) return;
  driver<int(Address, size_t)>("cuMemUnmap")(address, range.size);
  driver<int(Handle)>("cuMemRelease")(range.handle);
  range.handle = 0;
}

}  // namespace

extern "C" {

void* sleeper_malloc(ssize_t size, int device, void*) {
  size_t granularity = 0;
  const AllocationProperties p = properties(device);
  driver<int(size_t*, const AllocationProperties*, int)>("cuMemGetAllocationGranularity")(
      &granularity, &p, 0);
  if (granularity == 0) granularity = size_t{2} << 20;
  Range range;
  range.size = (static_cast<size_t>(size) + granularity - 1) / granularity * granularity;
  range.device = device;
  Address address = 0;
  if (driver<int(Address*, size_t, size_t, Address, Handle)>("cuMemAddressReserve")(
          &address, range.size, 0, 0, 0) != 0) {
    return nullptr;
  }
  if (!fill(address, range)) return nullptr;
  const std::lock_guard lock(g_lock);
  g_ranges[address] = range;
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}

void sleeper_free(void* pointer, ssize_t, int, void*) {
  const std::lock_guard lock(g_lock);
  const auto it = g_ranges.find(static_cast<Address>(reinterpret_cast<uintptr_t>(pointer)));
  if (it == g_ranges.end()) return;
  empty(it->first, it->second);
  driver<int(Address, size_t)>("cuMemAddressFree")(it->first, it->second.size);
  g_ranges.erase(it);
}

// Both return the number of bytes that were unmapped or mapped.
size_t sleeper_sleep() {
  const std::lock_guard lock(g_lock);
  size_t bytes = 0;
  for (auto& [address, range] : g_ranges) {
    if (range.handle == 0) continue;
    empty(address, range);
    bytes += range.size;
  }
  return bytes;
}

size_t sleeper_wake() {
  const std::lock_guard lock(g_lock);
  size_t bytes = 0;
  for (auto& [address, range] : g_ranges) {
    if (range.handle == 0 && fill(address, range)) bytes += range.size;
  }
  return bytes;
}
}
