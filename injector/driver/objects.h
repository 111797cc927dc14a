// What the callbacks learn about devices, contexts, pools and imports, for use by the task thread.
//
// Fixed tables of atomics: a callback never waits and never allocates. A full table ignores new
// entries: their events are recorded all the same, but they are not sampled, which the caller
// counts as dropped Counter rows.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "injector/driver/live_total.h"
#include "proto/rows.h"

namespace tidemark::injector {

inline constexpr size_t kMaxDevices = 64;
inline constexpr int64_t kNoDevice = -1;

// Which devices this process uses, and what on them is worth sampling.
class DeviceUse {
 public:
  void note(int64_t device) noexcept { set(used_, device); }
  // True for the first allocation on the device.
  bool note_allocation(int64_t device) noexcept { return set(allocated_, device); }
  void note_graph_memory(int64_t device) noexcept { set(graph_, device); }
  // Its size, as CUDA reports it; 0 until the task thread has asked.
  uint64_t total_bytes(int64_t device) const noexcept {
    return valid(device) ? total_[static_cast<size_t>(device)].load(std::memory_order_relaxed) : 0;
  }
  void set_total_bytes(int64_t device, uint64_t bytes) noexcept {
    if (valid(device)) total_[static_cast<size_t>(device)].store(bytes, std::memory_order_relaxed);
  }
  bool used(int64_t device) const noexcept { return has(used_, device); }
  bool has_graph_memory(int64_t device) const noexcept { return has(graph_, device); }
  void clear() noexcept {
    used_.store(0);
    allocated_.store(0);
    graph_.store(0);
  }

 private:
  static bool valid(int64_t device) noexcept {
    return device >= 0 && device < static_cast<int64_t>(kMaxDevices);
  }
  // True if the bit was not set before.
  static bool set(std::atomic<uint64_t>& bits, int64_t device) noexcept {
    if (!valid(device)) return false;
    const uint64_t bit = uint64_t{1} << device;
    if ((bits.load(std::memory_order_relaxed) & bit) != 0) return false;
    return (bits.fetch_or(bit) & bit) == 0;
  }
  static bool has(const std::atomic<uint64_t>& bits, int64_t device) noexcept {
    return valid(device) && (bits.load(std::memory_order_relaxed) >> device & 1) != 0;
  }

  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> allocated_{0};
  std::atomic<uint64_t> graph_{0};
  std::array<std::atomic<uint64_t>, kMaxDevices> total_{};
};

// Contexts by CUPTI's id, which is never reused.
class ContextTable {
 public:
  // kNoDevice if not known.
  int64_t device_of(uint32_t context) const noexcept;
  void note(uint32_t context, int64_t device) noexcept;
  // Number of contexts on a device.
  uint32_t live(int64_t device) const noexcept;
  void created(int64_t device) noexcept;
  // The recording began in a program that was running: contexts may be older.
  void expect_older() noexcept { began_late_.store(true, std::memory_order_relaxed); }
  // A call ran in a context on this device. True if contexts may be older than the recording and
  // none was known there: this one is, and from now on it is known.
  bool reveals_older(int64_t device) noexcept;
  void destroyed(int64_t device) noexcept;
  void clear() noexcept;

 private:
  static constexpr size_t kEntries = 256;
  std::array<std::atomic<uint64_t>, kEntries> entries_{};  // context << 32 | device + 1
  std::atomic<bool> began_late_{false};
  std::array<std::atomic<uint32_t>, kMaxDevices> live_{};
};

// The driver's pools and their ids in the trace. An id is used once: a handle that appears again
// after its pool was destroyed is another pool.
class PoolTable {
 public:
  // The id of this pool; its Pool row is recorded the first time.
  uint32_t id_of(uint64_t handle, int64_t device) noexcept;
  // The pool that cuMemAllocAsync uses on a device. The task thread finds out its handle.
  uint32_t current_of(int64_t device) noexcept;
  void set_current(int64_t device, uint64_t handle) noexcept;
  bool needs_handle(int64_t device) const noexcept;
  void learn_current(int64_t device, uint64_t handle) noexcept;

  // ENTER of cuMemPoolDestroy: from now on the pool is not sampled. Waits (bounded) for a sample
  // that is being taken, since the driver crashes on a query of a destroyed pool.
  void retire(uint64_t handle) noexcept;
  // The destruction failed.
  void revive(uint64_t handle) noexcept;
  void forget(uint64_t handle) noexcept;

  // Calls `sample(handle, id, device)` for each live pool, guarded against retire().
  template <typename Sample>
  void for_each_living(Sample&& sample) noexcept {
    for (Entry& entry : entries_) {
      const uint64_t handle = entry.handle.load();
      if (handle == 0 || !entry.alive.load()) continue;
      in_sample_.store(handle);
      if (entry.handle.load() == handle && entry.alive.load()) {
        sample(handle, entry.id.load(), entry.device.load());
      }
      in_sample_.store(0);
    }
  }
  void clear() noexcept;

 private:
  static constexpr size_t kEntries = 256;
  struct Entry {
    std::atomic<uint64_t> handle{0};
    std::atomic<uint32_t> id{0};
    std::atomic<int64_t> device{kNoDevice};
    std::atomic<bool> alive{false};
  };
  Entry* find(uint64_t handle) noexcept;
  uint32_t add(uint64_t handle, int64_t device, uint32_t id) noexcept;

  std::array<Entry, kEntries> entries_{};
  std::array<std::atomic<uint32_t>, kMaxDevices> current_{};
  std::atomic<uint64_t> current_known_{0};
  std::atomic<uint64_t> in_sample_{0};
};

// Ids for Pool rows. The pools of PyTorch are in the same table.
uint32_t next_pool_id() noexcept;

// Imports whose size is known only from a query by the task thread. Any thread adds and cancels;
// the task thread takes and finishes.
//
//   empty ─ add ─▶ full ─ take ─▶ in query ─ finish ─▶ empty
//                   │                └─ cancel ─▶ cancelled ─ finish ─▶ empty
//                   └─ cancel ─▶ empty
class PendingImports {
 public:
  struct Query {
    DriverEvent event{};
    size_t entry = 0;
  };

  // False: full.
  bool add(const DriverEvent& event) noexcept;
  bool take(Query& out) noexcept;
  // False: the import was closed since take(). Its address may have been in use for something else
  // when the driver was asked for its size.
  bool finish(const Query& query) noexcept;
  // The import is about to be closed.
  void cancel(uint64_t address) noexcept;
  void clear() noexcept;

 private:
  static constexpr size_t kEntries = 256;
  enum State : uint64_t { kEmpty, kBusy, kFull, kInQuery, kCancelled, kStates };
  struct Entry {
    // A state, plus kStates for each earlier use of the entry, so that cancel() cannot hit a later
    // one.
    std::atomic<uint64_t> use{kEmpty};
    std::atomic<uint64_t> address{0};
    DriverEvent event{};
  };
  static uint64_t in_state(uint64_t use, State state) noexcept {
    return use - use % kStates + state;
  }
  static uint64_t next_use(uint64_t use) noexcept { return in_state(use, kStates); }
  static void cancel(Entry& entry, uint64_t use) noexcept;
  std::array<Entry, kEntries> entries_{};
};

// Streams that are being captured into a graph. Only those on which a capture began: a stream that
// joined through an event cannot be told from others here.
class CapturedStreams {
 public:
  void begin(uint64_t stream) noexcept;
  void end(uint64_t stream) noexcept;
  bool contains(uint64_t stream) const noexcept;
  void clear() noexcept;

 private:
  static constexpr size_t kEntries = 64;
  std::array<std::atomic<uint64_t>, kEntries> streams_{};  // 0: no entry
  std::atomic<uint32_t> count_{0};
};

struct DriverObjects {
  DeviceUse devices;
  CapturedStreams captures;
  ContextTable contexts;
  PoolTable pools;
  PendingImports imports;
  LiveTotal live;
  Refusals refusals;
  DriverCalls calls;
  std::atomic<bool> driver_ready{false};  // cuInit has finished

  void clear() noexcept;
};
DriverObjects& driver_objects() noexcept;

}  // namespace tidemark::injector
