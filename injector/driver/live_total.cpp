#include "injector/driver/live_total.h"

namespace tidemark::injector {
namespace {

bool is_on_card(const DriverEvent& event) {
  if ((event.flags & (kDriverHostLocated | kDriverRemote | kDriverOwn)) != 0) return false;
  switch (event.kind) {
    case MemoryKind::kDevice:
    case MemoryKind::kPitched:
    case MemoryKind::kArray:
    case MemoryKind::kStreamOrdered:
    case MemoryKind::kVirtual:
      return true;
    default:
      return false;
  }
}

}  // namespace

LiveTotal::Entry& LiveTotal::entry(uint64_t key, size_t probe) noexcept {
  const uint64_t hash = (key >> 8 ^ key) * 0x9e3779b97f4a7c15;
  return entries_[((hash >> 40) + probe) % kEntries];
}

bool LiveTotal::add(uint64_t key, uint64_t bytes) noexcept {
  for (size_t probe = 0; probe < kProbes; ++probe) {
    Entry& place = entry(key, probe);
    uint64_t empty = 0;
    if (!place.key.compare_exchange_strong(empty, key)) continue;
    place.bytes.store(bytes);
    return true;
  }
  return false;
}

uint64_t LiveTotal::remove(uint64_t key) noexcept {
  for (size_t probe = 0; probe < kProbes; ++probe) {
    Entry& place = entry(key, probe);
    if (place.key.load() != key) continue;
    const uint64_t bytes = place.bytes.exchange(0);
    place.key.store(0);
    return bytes;
  }
  return 0;
}

bool LiveTotal::note(const DriverEvent& event) noexcept {
  if (event.device < 0 || event.device >= static_cast<int64_t>(kDevices) || !is_on_card(event)) {
    return false;
  }
  const auto device = static_cast<size_t>(event.device);
  const uint64_t key = event.address != 0 ? event.address : event.handle;
  switch (event.operation) {
    case DriverOperation::kFree:
    case DriverOperation::kRelease:
      total_[device].fetch_sub(remove(key));
      return false;
    case DriverOperation::kAllocate:
    case DriverOperation::kCreate:
      break;
    default:
      return false;
  }
  if (key == 0 || !add(key, event.size_bytes)) return false;
  const uint64_t total = total_[device].fetch_add(event.size_bytes) + event.size_bytes;
  uint64_t high = high_[device].load();
  while (total > high) {
    if (high_[device].compare_exchange_weak(high, total)) return true;
  }
  return false;
}

void LiveTotal::clear() noexcept {
  for (Entry& place : entries_) {
    if (place.key.load() == 0) continue;  // pages that were never touched stay so
    place.key.store(0);
    place.bytes.store(0);
  }
  for (size_t device = 0; device < kDevices; ++device) {
    total_[device].store(0);
    high_[device].store(0);
  }
}

}  // namespace tidemark::injector
