#include "injector/driver/objects.h"

#include <sched.h>

#include <cstdio>

#include "injector/recorder/recorder.h"

namespace tidemark::injector {
namespace {

constinit DriverObjects g_objects;
constinit std::atomic<uint32_t> g_next_pool{1};

// A query of a pool takes microseconds; waiting for more yields than this would not help.
constexpr int kLongestWait = 10000;

void record_pool(uint32_t id, uint64_t handle, std::string_view name) {
  recorder().record(Pool{id, handle, 0, recorder().intern_string(name)});
}

bool valid_device(int64_t device) {
  return device >= 0 && device < static_cast<int64_t>(kMaxDevices);
}

}  // namespace

DriverObjects& driver_objects() noexcept {
  return g_objects;
}

uint32_t next_pool_id() noexcept {
  return g_next_pool.fetch_add(1);
}

void DriverObjects::clear() noexcept {
  devices.clear();
  captures.clear();
  contexts.clear();
  pools.clear();
  imports.clear();
  live.clear();
  refusals.clear();
  calls.clear();
  driver_ready.store(false);
}

int64_t ContextTable::device_of(uint32_t context) const noexcept {
  const uint64_t entry = entries_[context % kEntries].load(std::memory_order_relaxed);
  if (entry >> 32 != context) return kNoDevice;
  return static_cast<int64_t>(entry & 0xffffffff) - 1;
}

void ContextTable::note(uint32_t context, int64_t device) noexcept {
  entries_[context % kEntries].store(
      static_cast<uint64_t>(context) << 32 | static_cast<uint32_t>(device + 1),
      std::memory_order_relaxed);
}

uint32_t ContextTable::live(int64_t device) const noexcept {
  if (!valid_device(device)) return 0;
  return live_[static_cast<size_t>(device)].load(std::memory_order_relaxed);
}

void ContextTable::created(int64_t device) noexcept {
  if (!valid_device(device)) return;
  live_[static_cast<size_t>(device)].fetch_add(1, std::memory_order_relaxed);
}

bool ContextTable::reveals_older(int64_t device) noexcept {
  if (!began_late_.load(std::memory_order_relaxed) || !valid_device(device)) return false;
  auto& count = live_[static_cast<size_t>(device)];
  uint32_t none = 0;
  return count.load(std::memory_order_relaxed) == 0 && count.compare_exchange_strong(none, 1);
}

void ContextTable::destroyed(int64_t device) noexcept {
  if (!valid_device(device)) return;
  auto& count = live_[static_cast<size_t>(device)];
  uint32_t live = count.load(std::memory_order_relaxed);
  while (live > 0 && !count.compare_exchange_weak(live, live - 1)) {
  }
}

void ContextTable::clear() noexcept {
  began_late_.store(false, std::memory_order_relaxed);
  for (auto& entry : entries_) entry.store(0);
  for (auto& count : live_) count.store(0);
}

PoolTable::Entry* PoolTable::find(uint64_t handle) noexcept {
  for (Entry& entry : entries_) {
    if (entry.handle.load() == handle) return &entry;
  }
  return nullptr;
}

uint32_t PoolTable::add(uint64_t handle, int64_t device, uint32_t id) noexcept {
  for (Entry& entry : entries_) {
    uint64_t empty = 0;
    if (entry.handle.load() != 0 || !entry.handle.compare_exchange_strong(empty, handle)) continue;
    entry.device.store(device);
    entry.id.store(id);
    entry.alive.store(true);
    return id;
  }
  recorder().count_dropped(BlockKind::kCounters, 1);
  return id;
}

uint32_t PoolTable::id_of(uint64_t handle, int64_t device) noexcept {
  if (handle == 0) return 0;
  if (Entry* entry = find(handle)) {
    // The thread that is adding the entry may not have set its id yet.
    for (int i = 0; i < kLongestWait && entry->id.load() == 0; ++i) sched_yield();
    return entry->id.load();
  }
  const uint32_t id = next_pool_id();
  record_pool(id, handle, "");
  return add(handle, device, id);
}

uint32_t PoolTable::current_of(int64_t device) noexcept {
  if (!valid_device(device)) return 0;
  auto& current = current_[static_cast<size_t>(device)];
  uint32_t id = current.load();
  if (id != 0) return id;
  const uint32_t fresh = next_pool_id();
  if (!current.compare_exchange_strong(id, fresh)) return id;
  char name[48];
  std::snprintf(name, sizeof name, "default pool of device %d", static_cast<int>(device));
  record_pool(fresh, 0, name);
  return fresh;
}

void PoolTable::set_current(int64_t device, uint64_t handle) noexcept {
  if (!valid_device(device) || handle == 0) return;
  const uint32_t id = id_of(handle, device);
  current_[static_cast<size_t>(device)].store(id);
  current_known_.fetch_or(uint64_t{1} << device);
}

bool PoolTable::needs_handle(int64_t device) const noexcept {
  return valid_device(device) && current_[static_cast<size_t>(device)].load() != 0 &&
         (current_known_.load() >> device & 1) == 0;
}

void PoolTable::learn_current(int64_t device, uint64_t handle) noexcept {
  if (!needs_handle(device) || handle == 0) return;
  current_known_.fetch_or(uint64_t{1} << device);
  const uint32_t id = current_[static_cast<size_t>(device)].load();
  if (find(handle) == nullptr) add(handle, device, id);
}

void PoolTable::retire(uint64_t handle) noexcept {
  Entry* entry = find(handle);
  if (entry == nullptr) return;
  entry->alive.store(false);
  for (int i = 0; i < kLongestWait && in_sample_.load() == handle; ++i) sched_yield();
}

void PoolTable::revive(uint64_t handle) noexcept {
  if (Entry* entry = find(handle)) entry->alive.store(true);
}

void PoolTable::forget(uint64_t handle) noexcept {
  Entry* entry = find(handle);
  if (entry == nullptr) return;
  entry->id.store(0);
  entry->handle.store(0);
}

void PoolTable::clear() noexcept {
  for (Entry& entry : entries_) {
    entry.alive.store(false);
    entry.id.store(0);
    entry.handle.store(0);
  }
  for (auto& id : current_) id.store(0);
  current_known_.store(0);
  in_sample_.store(0);
}

void CapturedStreams::begin(uint64_t stream) noexcept {
  if (stream == 0) return;  // the legacy stream cannot be captured
  for (auto& entry : streams_) {
    uint64_t empty = 0;
    if (!entry.compare_exchange_strong(empty, stream)) continue;
    count_.fetch_add(1);
    return;
  }
}

void CapturedStreams::end(uint64_t stream) noexcept {
  if (stream == 0) return;
  for (auto& entry : streams_) {
    uint64_t found = stream;
    if (!entry.compare_exchange_strong(found, 0)) continue;
    count_.fetch_sub(1);
    return;
  }
}

bool CapturedStreams::contains(uint64_t stream) const noexcept {
  if (stream == 0 || count_.load(std::memory_order_relaxed) == 0) return false;
  for (const auto& entry : streams_) {
    if (entry.load(std::memory_order_relaxed) == stream) return true;
  }
  return false;
}

void CapturedStreams::clear() noexcept {
  for (auto& entry : streams_) entry.store(0);
  count_.store(0);
}

bool PendingImports::add(const DriverEvent& event) noexcept {
  for (Entry& entry : entries_) {
    uint64_t use = entry.use.load(std::memory_order_relaxed);
    if (use % kStates != kEmpty || !entry.use.compare_exchange_strong(use, in_state(use, kBusy))) {
      continue;
    }
    entry.event = event;
    entry.address.store(event.address, std::memory_order_relaxed);
    entry.use.store(in_state(use, kFull), std::memory_order_release);
    return true;
  }
  return false;
}

bool PendingImports::take(Query& out) noexcept {
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    uint64_t use = entry.use.load(std::memory_order_acquire);
    if (use % kStates != kFull ||
        !entry.use.compare_exchange_strong(use, in_state(use, kInQuery))) {
      continue;
    }
    out = {entry.event, i};
    return true;
  }
  return false;
}

bool PendingImports::finish(const Query& query) noexcept {
  Entry& entry = entries_[query.entry];
  const uint64_t use = entry.use.load();
  // cancel() may come in between: then the exchange returns its state.
  return entry.use.exchange(next_use(use)) % kStates == kInQuery;
}

// Until the entry is in another use.
void PendingImports::cancel(Entry& entry, uint64_t use) noexcept {
  const uint64_t ended = next_use(use);
  while (use < ended && (use % kStates == kFull || use % kStates == kInQuery)) {
    const uint64_t after = use % kStates == kFull ? ended : in_state(use, kCancelled);
    if (entry.use.compare_exchange_strong(use, after)) return;
  }
}

void PendingImports::cancel(uint64_t address) noexcept {
  for (Entry& entry : entries_) {
    const uint64_t use = entry.use.load(std::memory_order_acquire);
    if (entry.address.load(std::memory_order_relaxed) == address) cancel(entry, use);
  }
}

void PendingImports::clear() noexcept {
  for (Entry& entry : entries_) cancel(entry, entry.use.load());
}

}  // namespace tidemark::injector
