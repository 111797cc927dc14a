#include "injector/driver/live_total.h"

#include <algorithm>

namespace tidemark::injector {

// As DriverAllocation::on_card() in analysis/history/driver_model.h.
LiveTotal::What LiveTotal::what_of(const DriverEvent& event) noexcept {
  if (event.kind == MemoryKind::kPinned) return What::kPinned;
  if ((event.flags & (kDriverHostLocated | kDriverRemote | kDriverOwn)) != 0) return What::kNothing;
  if (event.device < 0 || event.device >= static_cast<int64_t>(kDevices)) return What::kNothing;
  switch (event.kind) {
    case MemoryKind::kDevice:
    case MemoryKind::kPitched:
    case MemoryKind::kArray:
    case MemoryKind::kStreamOrdered:
    case MemoryKind::kVirtual:
      return What::kCard;
    case MemoryKind::kGraph:
    case MemoryKind::kStatic:
      return What::kGraph;
    default:
      return What::kNothing;
  }
}

uint64_t LiveTotal::about(What what, uint8_t owner, int64_t device, uint8_t tie) noexcept {
  return kOneUse | static_cast<uint64_t>(what) | uint64_t{owner} << 8 |
         (static_cast<uint64_t>(device) & 0xff) << 16 | uint64_t{tie} << 24;
}

// Enough to tell apart the contexts that are alive at the same time.
uint8_t LiveTotal::tie_to(uint32_t context) noexcept {
  return static_cast<uint8_t>(1 + context % (kTiedToLast - 1));
}

uint8_t LiveTotal::tie_of(const DriverEvent& event) noexcept {
  if (event.kind == MemoryKind::kVirtual) return kTiedToNone;
  const bool pooled =
      event.kind == MemoryKind::kStreamOrdered || event.kind == MemoryKind::kGraph;
  return pooled || event.context == 0 ? kTiedToLast : tie_to(event.context);
}

void LiveTotal::end_context(int64_t device, uint32_t context, bool last) noexcept {
  for (Entry& place : entries_) {
    if (place.key.load(std::memory_order_relaxed) == 0) continue;
    const uint64_t what = place.about.load();
    const auto tie = static_cast<uint8_t>(what >> 24);
    const bool here = (what >> 16 & 0xff) == (static_cast<uint64_t>(device) & 0xff);
    const bool ends = tie == kTiedToLast ? last && here : context != 0 && tie == tie_to(context);
    if (ends && tie != kTiedToNone) remove(place);
  }
}

LiveTotal::Entry& LiveTotal::entry(uint64_t key, size_t probe) noexcept {
  const uint64_t hash = (key >> 8 ^ key) * 0x9e3779b97f4a7c15;
  return entries_[((hash >> 40) + probe) % kEntries];
}

LiveTotal::Entry* LiveTotal::find(uint64_t key) noexcept {
  for (size_t probe = 0; probe < kProbes; ++probe) {
    if (Entry& place = entry(key, probe); place.key.load() == key) return &place;
  }
  return nullptr;
}

bool LiveTotal::add(uint64_t key, uint64_t bytes, uint64_t about, uint64_t handle) noexcept {
  for (size_t probe = 0; probe < kProbes; ++probe) {
    Entry& place = entry(key, probe);
    uint64_t empty = 0;
    if (!place.key.compare_exchange_strong(empty, key)) continue;
    place.handle.store(handle);
    place.bytes.store(bytes);
    place.about.store(about);
    return true;
  }
  uncounted_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void LiveTotal::remove(Entry& place) noexcept {
  const uint64_t what = place.about.exchange(0);
  const uint64_t bytes = place.bytes.exchange(0);
  const size_t device = what >> 16 & 0xff;
  if (static_cast<What>(what & 0xff) == What::kCard) total_[device].fetch_sub(bytes);
  place.key.store(0);
}

// True: a new high.
bool LiveTotal::hold(uint64_t key, const DriverEvent& event, uint8_t owner) noexcept {
  const What what = what_of(event);
  if (what == What::kNothing || key == 0) return false;
  if (Entry* const left = find(key)) remove(*left);  // its free was not seen
  if (!add(key, event.size_bytes, about(what, owner, event.device, tie_of(event)))) {
    return false;
  }
  if (what != What::kCard) return false;
  const auto device = static_cast<size_t>(event.device);
  const uint64_t total = total_[device].fetch_add(event.size_bytes) + event.size_bytes;
  uint64_t high = high_[device].load();
  while (total > high) {
    if (high_[device].compare_exchange_weak(high, total)) return true;
  }
  return false;
}

void LiveTotal::end_use(uint64_t key) noexcept {
  Entry* const place = find(key);
  if (place != nullptr && place->about.fetch_sub(kOneUse) < 2 * kOneUse) remove(*place);
}

// One call may unmap what was mapped piece by piece.
void LiveTotal::unmap(const DriverEvent& event) noexcept {
  const uint64_t end = event.address + std::max<uint64_t>(event.size_bytes, 1);
  uint64_t at = event.address;
  while (at < end) {
    Entry* const mapping = find(at);
    if (mapping == nullptr) return unmap_seeded(at, end);
    at += std::max<uint64_t>(mapping->bytes.load(), 1);
    const uint64_t handle = mapping->handle.load();
    remove(*mapping);
    end_use(handle);
  }
}

// What was mapped before the recording began is known as one range.
void LiveTotal::unmap_seeded(uint64_t begin, uint64_t end) noexcept {
  for (Entry& place : entries_) {
    const uint64_t whole = place.key.load();
    const uint64_t what = place.about.load();
    const uint64_t whole_end = whole + place.bytes.load();
    if (whole == 0 || (whole & kHandleBit) != 0 || whole > begin || whole_end <= begin ||
        static_cast<What>(what & 0xff) != What::kCard) {
      continue;
    }
    remove(place);
    const auto keep = [&](uint64_t from, uint64_t to) {
      if (from < to && add(from, to - from, what)) total_[what >> 16 & 0xff].fetch_add(to - from);
    };
    keep(whole, begin);
    return keep(end, whole_end);
  }
}

bool LiveTotal::note(const DriverEvent& event, uint8_t owner) noexcept {
  const uint64_t handle = event.handle | kHandleBit;
  const uint64_t key = event.address != 0 ? event.address : event.handle != 0 ? handle : 0;
  switch (event.operation) {
    case DriverOperation::kAllocate:
    case DriverOperation::kRegister:
      return hold(key, event, owner);
    case DriverOperation::kCreate:
      return hold(handle, event, owner);
    case DriverOperation::kFree:
    case DriverOperation::kUnregister:
      if (Entry* const place = find(key)) remove(*place);
      return false;
    case DriverOperation::kRetain:
      if (Entry* const place = find(handle)) place->about.fetch_add(kOneUse);
      return false;
    case DriverOperation::kRelease:
      end_use(handle);
      return false;
    case DriverOperation::kMap:
      if (event.kind == MemoryKind::kMulticast) return false;  // of memory that is counted already
      if (Entry* const place = find(handle);
          place != nullptr && add(event.address, event.size_bytes,
                                  about(What::kMapping, owner, event.device, kTiedToNone),
                                  handle)) {
        place->about.fetch_add(kOneUse);
      }
      return false;
    case DriverOperation::kUnmap:
      if (event.kind != MemoryKind::kMulticast) unmap(event);
      return false;
    default:
      return false;
  }
}

void LiveTotal::add_up(HeldBytes& out) const noexcept {
  for (const Entry& place : entries_) {
    if (place.key.load(std::memory_order_relaxed) == 0) continue;
    const uint64_t what = place.about.load();
    const uint64_t bytes = place.bytes.load();
    switch (static_cast<What>(what & 0xff)) {
      case What::kCard:
      case What::kGraph:
        out.on_card[(what >> 16) % kDevices][(what >> 8) % HeldBytes::kOwners] += bytes;
        break;
      case What::kPinned:
        out.pinned += bytes;
        break;
      default:
        break;
    }
  }
}

void LiveTotal::clear() noexcept {
  for (Entry& place : entries_) {
    if (place.key.load() == 0) continue;  // pages that were never touched stay so
    place.key.store(0);
    place.bytes.store(0);
    place.about.store(0);
  }
  for (size_t device = 0; device < kDevices; ++device) {
    total_[device].store(0);
    high_[device].store(0);
  }
  uncounted_.store(0);
}

}  // namespace tidemark::injector
