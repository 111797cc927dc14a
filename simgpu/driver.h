// The state of the stand-in driver in one process.
//
// One mutex protects all of it: tests need correctness, not speed. Driver functions hold it while
// they change state (call.h) and never while a callback runs. A handle is a pointer to its object
// and is looked up before use, so a stale handle is an error and not a crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "abi/cuda.h"
#include "simgpu/address_space.h"
#include "simgpu/cards.h"
#include "simgpu/config.h"
#include "simgpu/graph_state.h"
#include "simgpu/pool_state.h"
#include "simgpu/vmm_state.h"

#define SIMGPU_EXPORT extern "C" __attribute__((visibility("default")))

namespace tidemark::simgpu {

using namespace cuda;  // NOLINT: the stand-in uses the driver's names throughout

inline constexpr uint64_t kAllocationAlignment = 512;

struct Context;

struct Stream {
  uint32_t id;
  Context* context;
  int64_t busy_until_ns = 0;  // end of the last enqueued work
  Graph* capture = nullptr;
};

struct Context {
  uint32_t id;
  int device;
  bool primary = false;
  uint64_t tool_bytes = 0;  // held by CUPTI in this context
  Stream legacy_stream;
};

struct Device {
  Device(const Config& config, int ordinal_, int card_index);
  int ordinal;
  Card card;
  AddressSpace addresses;
  uint32_t contexts = 0;
  Context* primary = nullptr;
  uint32_t primary_users = 0;
  Pool* default_pool = nullptr;
  Pool* current_pool = nullptr;
  GraphMemory graph_memory;
};

enum class AllocationKind {
  kDevice,
  kManaged,
  kPinned,
  kRegistered,
  kPooled,
  kGraph,
  kIpc,
  kExternal,
};

// An address range known to cuMemGetAddressRange.
struct Allocation {
  AllocationKind kind;
  uint64_t address;
  uint64_t bytes;          // as requested
  uint64_t charged_bytes;  // taken from the card for this range
  int device;
  Context* context;
  Pool* pool = nullptr;
  uint32_t users = 1;  // opens of an IPC handle
  uint64_t remote_address = 0;
  uint32_t remote_pid = 0;
};

struct Array {
  uint64_t bytes;
  uint64_t charged_bytes;
  int device;
  Context* context;
  CUDA_ARRAY3D_DESCRIPTOR descriptor;
  unsigned int levels;
};

struct ExternalMemory {
  uint64_t bytes;
  int device;
};

struct Module {
  uint32_t id;
  Context* context;  // nullptr: a library, loaded for all contexts
  uint64_t charged_bytes;
  int device;
  bool text;          // PTX: its entry points are known
  std::string image;  // of PTX, or empty
};

struct Function {
  Module* module;
  const char* name;  // interned
};

// Objects of one type; the handle is the address of the object.
template <typename T>
class Table {
 public:
  T* add(T value) {
    auto object = std::make_unique<T>(std::move(value));
    T* handle = object.get();
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  T* find(const void* handle) {
    auto it = objects_.find(handle);
    return it == objects_.end() ? nullptr : it->second.get();
  }
  void erase(const void* handle) { objects_.erase(handle); }
  template <typename Test>
  void erase_if(Test test) {
    std::erase_if(objects_, [&](const auto& entry) { return test(*entry.second); });
  }
  template <typename Visit>
  void each(Visit visit) {
    for (auto& entry : objects_) visit(*entry.second);
  }

 private:
  std::unordered_map<const void*, std::unique_ptr<T>> objects_;
};

class Driver {
 public:
  // Never destroyed: host threads may call it until the process ends.
  static Driver& get();

  // Reads the environment, opens the cards, loads the injection library. Once per process.
  CUresult initialise();
  bool ready() const;

  Device* device(int ordinal);
  Device& device_of(const Context& context) {
    return *devices[static_cast<size_t>(context.device)];
  }

  // Takes memory from the card; if it is full, pools first release what they hold in reserve.
  bool take(Device& device, uint64_t bytes);

  std::map<uint64_t, Allocation>::iterator find_range(uint64_t address);
  // Frees an allocation's addresses and bytes.
  void drop(std::map<uint64_t, Allocation>::iterator it);

  // A copy of the name that lives as long as the process.
  const char* intern(const std::string& name);
  uint32_t next_id() { return ++last_id_; }

  std::mutex mutex;
  Config config;
  std::vector<std::unique_ptr<Device>> devices;
  Table<Context> contexts;
  Table<Stream> streams;
  Table<Pool> pools;
  Table<Array> arrays;
  Table<ExternalMemory> external;
  Table<Module> modules;
  Table<Function> functions;
  Table<Graph> graphs;
  Table<GraphExec> graph_execs;
  std::map<uint64_t, Allocation> allocations;
  VirtualMemory vmm;

 private:
  Driver();
  uint32_t last_id_ = 0;
  std::unordered_map<std::string, std::unique_ptr<std::string>> names_;
};

int64_t now_ns();
inline uint64_t round_up(uint64_t value, uint64_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace tidemark::simgpu
