// What LiveState knows of the driver's memory.
#include <algorithm>

#include "injector/trace/live_state_rows.h"

namespace tidemark::injector {

namespace {

// Arrays have handles, everything else an address.
uint64_t address_key(const DriverEvent& e) {
  return key_of(Key::kAddress, e.kind == MemoryKind::kArray ? e.handle : e.address);
}

// As DriverAllocation::on_card() in analysis/history/driver_model.h.
bool is_on_card(const DriverEvent& e) {
  if ((e.flags & (kDriverRemote | kDriverHostLocated)) != 0) return false;
  switch (e.kind) {
    case MemoryKind::kDevice:
    case MemoryKind::kPitched:
    case MemoryKind::kArray:
    case MemoryKind::kStreamOrdered:
    case MemoryKind::kVirtual:
    case MemoryKind::kGraph:
    case MemoryKind::kStatic:
      return true;
    default:
      return false;
  }
}

bool allocates(DriverOperation operation) {
  return operation == DriverOperation::kAllocate || operation == DriverOperation::kCreate ||
         operation == DriverOperation::kImport;
}

}  // namespace

void LiveState::take(DriverEvent& row) noexcept {
  if (row.result != 0) return note_failure(row);
  put_behind_state(row);
  used_memory_ |= allocates(row.operation) && is_on_card(row);
  incomplete_ |= !held_driver_.add(row);
}

// Only errors of the program: PyTorch and the libraries of CUDA may get along with less.
void LiveState::note_failure(const DriverEvent& row) noexcept {
  constexpr uint32_t kCudaErrorOutOfMemory = 2;
  if (row.result != kCudaErrorOutOfMemory || !valid_device(row.device)) return;
  if (row.owner == owner_program_) ++devices_[row.device].totals.failed_by_driver;
}

void LiveState::count(const Object& object, bool added) noexcept {
  const DriverEvent& row = object.row;
  if (is(Key::kMapping, object.key) || is(Key::kModule, object.key) ||
      is(Key::kContext, object.key) || !valid_device(row.device) || !is_on_card(row)) {
    return;
  }
  DeviceTotals& totals = devices_[row.device].totals;
  totals.has_driver = true;
  totals.driver += added ? row.size_bytes : 0 - row.size_bytes;
  note_totals(totals);
}

void LiveState::put(const Object& object) noexcept {
  Object* const place = objects_.find_or_add(object.key);
  check(place);
  if (place == nullptr) return;
  count(*place, false);  // its free is missing; a new place has no size
  *place = object;
  count(*place, true);
}

void LiveState::remove(Object* object) noexcept {
  if (object == nullptr) return;
  count(*object, false);
  objects_.erase(object);
}

void LiveState::apply(const DriverEvent& e) noexcept {
  const auto put = [&](uint64_t key) { this->put({key, e, 0, 0, 0, 0}); };
  const auto remove = [&](uint64_t key) { this->remove(objects_.find(key)); };
  switch (e.operation) {
    case DriverOperation::kAllocate:
    case DriverOperation::kRegister:
      return put(address_key(e));
    case DriverOperation::kFree:
    case DriverOperation::kUnregister:
      return remove(address_key(e));
    case DriverOperation::kImport:
      return e.address != 0 ? put(address_key(e)) : apply_vmm(e);
    case DriverOperation::kModuleLoad:
      return put(key_of(Key::kModule, e.handle));
    case DriverOperation::kModuleUnload:
      return remove(key_of(Key::kModule, e.handle));
    case DriverOperation::kContextCreate:
      return put(key_of(Key::kContext, e.handle + static_cast<uint64_t>(e.device) + 1));
    case DriverOperation::kContextDestroy:
      remove(key_of(Key::kContext, e.handle + static_cast<uint64_t>(e.device) + 1));
      return end_context(e);
    default:
      return apply_vmm(e);
  }
}

// As in analysis/history/driver_model.h: memory ends with its context, pools with the last one.
void LiveState::end_context(const DriverEvent& e) noexcept {
  bool last = true;
  objects_.for_each([&](const Object& o) {
    if (is(Key::kContext, o.key) && o.row.device == e.device) last = false;
  });
  PageList<uint64_t> ended;
  objects_.for_each([&](const Object& o) {
    if (!is(Key::kAddress, o.key) && !is(Key::kModule, o.key)) return;
    const MemoryKind kind = o.row.kind;
    if (kind == MemoryKind::kVirtual) return;
    const bool pooled = kind == MemoryKind::kStreamOrdered || kind == MemoryKind::kGraph;
    const bool ends = pooled || o.row.context == 0 ? last && o.row.device == e.device
                                                   : o.row.context == e.context;
    if (ends) incomplete_ |= !ended.add(o.key);
  });
  for (const uint64_t key : ended) remove(objects_.find(key));
}

// Physical memory lives while it is referenced or mapped.
void LiveState::apply_vmm(const DriverEvent& e) noexcept {
  Object* const physical = objects_.find(key_of(Key::kHandle, e.handle));
  switch (e.operation) {
    case DriverOperation::kCreate:
    case DriverOperation::kImport:
      put({key_of(Key::kHandle, e.handle), e, 1, 0, 0, 0});
      return;
    case DriverOperation::kRetain:
      if (physical != nullptr) ++physical->references;
      return;
    case DriverOperation::kRelease:
      if (physical != nullptr) --physical->references;
      return drop_if_unused(e.handle);
    case DriverOperation::kMap: {
      if (physical == nullptr || e.kind == MemoryKind::kMulticast) return;
      ++physical->mappings;
      if (physical->row.size_bytes == 0) {  // an import, whose size becomes known now
        Object known = *physical;
        known.row.size_bytes = e.size_bytes;
        put(known);
      }
      put({key_of(Key::kMapping, e.address), e, 0, 0, e.handle, 0});
      return;
    }
    case DriverOperation::kUnmap: {
      if (e.kind == MemoryKind::kMulticast) return;
      PageList<uint64_t> gone;
      objects_.for_each([&](const Object& o) {
        if (is(Key::kMapping, o.key) &&
            o.row.address - e.address < std::max<uint64_t>(e.size_bytes, 1)) {
          incomplete_ |= !gone.add(o.key);
        }
      });
      for (const uint64_t key : gone) {
        Object* const mapping = objects_.find(key);
        const uint64_t handle = mapping->handle;
        remove(mapping);
        if (Object* const of = objects_.find(key_of(Key::kHandle, handle))) --of->mappings;
        drop_if_unused(handle);
      }
      return unmap_seeded(e);
    }
    default:
      return;
  }
}

void LiveState::drop_if_unused(uint64_t handle) noexcept {
  Object* const physical = objects_.find(key_of(Key::kHandle, handle));
  if (physical != nullptr && physical->references <= 0 && physical->mappings <= 0) {
    remove(physical);
  }
}

// As in analysis/history/driver_model.h: a segment that grew by mappings before the recording began
// is known as one range. The unmapped part of it is removed, the rest stays.
void LiveState::unmap_seeded(const DriverEvent& e) noexcept {
  const uint64_t end = e.address + e.size_bytes;
  Object whole{};
  objects_.for_each([&](const Object& o) {
    const bool seeded = is(Key::kAddress, o.key) && (o.row.flags & kDriverSeeded) != 0 &&
                        o.row.kind == MemoryKind::kVirtual;
    if (seeded && o.row.address <= e.address && e.address - o.row.address < o.row.size_bytes) {
      whole = o;
    }
  });
  if (whole.key == 0 || end < e.address) return;
  remove(objects_.find(whole.key));
  const auto keep = [&](uint64_t from, uint64_t to) {
    if (from >= to) return;
    Object part = whole;
    part.row.address = from;
    part.row.size_bytes = to - from;
    part.key = address_key(part.row);
    put(part);
  };
  keep(whole.row.address, e.address);
  keep(end, whole.row.address + whole.row.size_bytes);
}

}  // namespace tidemark::injector
