#include "analysis/history/driver_model.h"

#include <algorithm>
#include <utility>

namespace tidemark {

namespace {

size_t index_of(MemoryKind kind) {
  const auto i = static_cast<size_t>(kind);
  return i < kMemoryKinds ? i : 0;
}

// Physical memory of a VMM handle: alive while referenced or mapped.
struct Physical {
  uint32_t allocation = 0;
  int64_t references = 0;
  int64_t mappings = 0;
};

struct Mapped {
  uint64_t handle = 0;
  uint32_t index = 0;  // in DriverModel::mappings
};

class DriverReplay {
 public:
  DriverModel run(std::vector<DriverEvent> events) {
    std::stable_sort(events.begin(), events.end(), [](const DriverEvent& a, const DriverEvent& b) {
      return a.time_ns < b.time_ns;
    });
    for (const DriverEvent& event : events) apply(event);
    return std::move(model_);
  }

 private:
  void apply(const DriverEvent& e) {
    if (e.result != 0) {
      note_failure(e);
      return;
    }
    switch (e.operation) {
      case DriverOperation::kAllocate:
      case DriverOperation::kRegister:
        take_address(e);
        break;
      case DriverOperation::kFree:
      case DriverOperation::kUnregister:
        release_address(key_of(e), e.time_ns);
        break;
      case DriverOperation::kCreate:
        physical_[e.handle] = {birth(e, e.handle), 1, 0};
        break;
      case DriverOperation::kImport:
        import_memory(e);
        break;
      case DriverOperation::kRetain:
        if (const auto it = physical_.find(e.handle); it != physical_.end()) {
          ++it->second.references;
        }
        break;
      case DriverOperation::kRelease:
        drop(e.handle, e.time_ns, [](Physical& p) { --p.references; });
        break;
      case DriverOperation::kMap:
        map(e);
        break;
      case DriverOperation::kUnmap:
        unmap(e);
        break;
      case DriverOperation::kContextCreate:
        contexts_[{e.device, e.handle}] = static_cast<uint32_t>(model_.contexts.size());
        model_.contexts.push_back({e.device, e.time_ns});
        if ((e.flags & kDriverSeeded) != 0) model_.began_late.insert(e.device);
        break;
      case DriverOperation::kContextDestroy:
        end_context(e);
        break;
      case DriverOperation::kModuleLoad:
        modules_[e.handle] = birth(e, e.handle);
        break;
      case DriverOperation::kModuleUnload:
        if (const auto it = modules_.find(e.handle); it != modules_.end()) {
          death(it->second, e.time_ns);
          modules_.erase(it);
        }
        break;
      default:
        break;
    }
  }

  void note_failure(const DriverEvent& e) {
    // Other errors answer a query: PyTorch requests fabric handles to learn whether the card
    // supports them.
    constexpr uint32_t kCudaErrorOutOfMemory = 2;
    if (e.result != kCudaErrorOutOfMemory) return;
    model_.failures.push_back({.time_ns = e.time_ns,
                               .device = e.device,
                               .requested_bytes = e.size_bytes,
                               .stack = e.stack,
                               .owner = e.owner,
                               .layer = Layer::kDriver});
  }

  // Arrays have handles, everything else an address.
  static uint64_t key_of(const DriverEvent& e) {
    return e.kind == MemoryKind::kArray ? e.handle : e.address;
  }

  void take_address(const DriverEvent& e) {
    const uint64_t key = key_of(e);
    if (const auto it = by_address_.find(key); it != by_address_.end()) {
      // An import is recorded immediately, and again with the same time when its size is known.
      DriverAllocation& known = model_.allocations[it->second];
      if (known.birth_ns == e.time_ns && known.size_bytes == 0) {
        known.size_bytes = e.size_bytes;
        count(known, e.time_ns, true);
        return;
      }
      death(it->second, e.time_ns);  // its free was not recorded
    }
    by_address_[key] = birth(e, key);
  }

  void import_memory(const DriverEvent& e) {
    if (e.address != 0) {
      take_address(e);
    } else {
      physical_[e.handle] = {birth(e, e.handle), 1, 0};
    }
  }

  void map(const DriverEvent& e) {
    if (e.kind == MemoryKind::kMulticast) return;  // binds memory that is already counted
    const auto it = physical_.find(e.handle);
    if (it == physical_.end()) return;
    ++it->second.mappings;
    maps_[e.address] = {e.handle, static_cast<uint32_t>(model_.mappings.size())};
    model_.mappings.push_back(
        {e.address, e.size_bytes, e.time_ns, INT64_MAX, it->second.allocation});
    // The size of an import becomes known when it is mapped.
    DriverAllocation& a = model_.allocations[it->second.allocation];
    if (a.size_bytes == 0) a.size_bytes = e.size_bytes;
  }

  void unmap(const DriverEvent& e) {
    if (e.kind == MemoryKind::kMulticast) return;
    auto it = maps_.lower_bound(e.address);
    while (it != maps_.end() && it->first - e.address < std::max<uint64_t>(e.size_bytes, 1)) {
      model_.mappings[it->second.index].death_ns = e.time_ns;
      drop(it->second.handle, e.time_ns, [](Physical& p) { --p.mappings; });
      it = maps_.erase(it);
    }
    unmap_seeded(e);
  }

  // A segment that grew by mappings before the recording began is known as one range: remove the
  // unmapped part and keep the rest.
  void unmap_seeded(const DriverEvent& e) {
    const uint64_t end = e.address + e.size_bytes;
    auto it = by_address_.upper_bound(e.address);
    if (it == by_address_.begin() || end < e.address) return;
    const uint32_t index = (--it)->second;
    const DriverAllocation whole = model_.allocations[index];
    const uint64_t whole_end = whole.address + whole.size_bytes;
    const bool seeded = (whole.flags & kDriverSeeded) != 0 && whole.kind == MemoryKind::kVirtual;
    if (!seeded || e.address >= whole_end) return;
    death(index, e.time_ns);
    by_address_.erase(it);
    if (e.address > whole.address) keep_part(whole, whole.address, e.address, e.time_ns);
    if (end < whole_end) keep_part(whole, end, whole_end, e.time_ns);
  }

  void keep_part(DriverAllocation part, uint64_t begin, uint64_t end, int64_t time_ns) {
    part.address = begin;
    part.size_bytes = end - begin;
    part.birth_ns = time_ns;
    by_address_[begin] = static_cast<uint32_t>(model_.allocations.size());
    model_.allocations.push_back(part);
    context_of_.push_back(0);
    count(part, time_ns, true);
  }

  template <typename Change>
  void drop(uint64_t handle, int64_t time_ns, Change&& change) {
    const auto it = physical_.find(handle);
    if (it == physical_.end()) {
      ++model_.unknown_frees;
      return;
    }
    change(it->second);
    if (it->second.references > 0 || it->second.mappings > 0) return;
    death(it->second.allocation, time_ns);
    physical_.erase(it);
  }

  void release_address(uint64_t address, int64_t time_ns) {
    const auto it = by_address_.find(address);
    if (it == by_address_.end()) {
      if (address != 0) ++model_.unknown_frees;  // freeing null is legal and does nothing
      return;
    }
    death(it->second, time_ns);
    by_address_.erase(it);
  }

  void end_context(const DriverEvent& e) {
    auto ended = contexts_.find({e.device, e.handle});
    // One from before the recording may be known without its handle.
    if (ended == contexts_.end()) ended = contexts_.find({e.device, 0});
    if (ended == contexts_.end()) return;
    model_.contexts[ended->second].death_ns = e.time_ns;
    contexts_.erase(ended);
    const auto other = contexts_.lower_bound({e.device, 0});
    const bool last = other == contexts_.end() || other->first.first != e.device;
    const auto dies = [&](uint32_t index) {
      const DriverAllocation& a = model_.allocations[index];
      const uint32_t context = context_of_[index];
      if (a.kind == MemoryKind::kVirtual) return false;
      const bool pooled = a.kind == MemoryKind::kStreamOrdered || a.kind == MemoryKind::kGraph;
      return pooled || context == 0 ? last && a.device == e.device : context == e.context;
    };
    for (auto* held : {&by_address_, &modules_}) {
      std::erase_if(*held, [&](const auto& entry) {
        if (!dies(entry.second)) return false;
        death(entry.second, e.time_ns);
        return true;
      });
    }
  }

  uint32_t birth(const DriverEvent& e, uint64_t address) {
    DriverAllocation a;
    a.address = address;
    a.size_bytes = e.size_bytes;
    a.stream = e.stream;
    a.birth_ns = e.time_ns;
    a.device = e.device;
    a.owner = e.owner;
    a.stack = e.stack;
    a.thread = e.thread;
    a.pool = e.pool;
    a.flags = e.flags;
    a.kind = e.operation == DriverOperation::kModuleLoad ? MemoryKind::kCode : e.kind;
    const auto index = static_cast<uint32_t>(model_.allocations.size());
    model_.allocations.push_back(a);
    context_of_.push_back(e.context);
    count(a, e.time_ns, true);
    return index;
  }

  void death(uint32_t index, int64_t time_ns) {
    DriverAllocation& a = model_.allocations[index];
    a.death_ns = time_ns;
    count(a, time_ns, false);
  }

  void count(const DriverAllocation& a, int64_t time_ns, bool born) {
    // Remote and host-located memory keeps its kind but is not on this card.
    if ((a.flags & (kDriverRemote | kDriverHostLocated)) != 0) return;
    KindBytes& live = live_[a.device];
    uint64_t& of_kind = live[index_of(a.kind)];
    uint64_t& card = card_[a.device];
    if (born) {
      of_kind += a.size_bytes;
      card += a.on_card() ? a.size_bytes : 0;
    } else {
      of_kind -= a.size_bytes;
      card -= a.on_card() ? a.size_bytes : 0;
    }
    DriverDevice& device = model_.devices[a.device];
    uint64_t& peak = device.peak_by_kind[index_of(a.kind)];
    peak = std::max(peak, of_kind);
    if (card > device.card_peak.bytes) device.card_peak = {card, time_ns, 0};
  }

  DriverModel model_;
  std::map<uint64_t, uint32_t> by_address_;  // -> allocation
  std::map<uint64_t, Physical> physical_;    // by handle
  std::map<uint64_t, Mapped> maps_;          // by address
  std::map<uint64_t, uint32_t> modules_;     // handle -> allocation
  std::map<std::pair<int64_t, uint64_t>, uint32_t> contexts_;  // device and handle, alive
  std::vector<uint32_t> context_of_;                           // by allocation; 0: not known
  std::map<int64_t, KindBytes> live_;
  std::map<int64_t, uint64_t> card_;
};

}  // namespace

bool DriverAllocation::on_card() const {
  if ((flags & (kDriverRemote | kDriverHostLocated)) != 0) return false;
  switch (kind) {
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

DriverModel build_driver_model(std::vector<DriverEvent> events) {
  return DriverReplay().run(std::move(events));
}

DriverState driver_state_at(const DriverModel& model, int64_t device, int64_t time_ns) {
  DriverState state;
  for (const DriverAllocation& a : model.allocations) {
    if (a.device != device || a.birth_ns > time_ns || a.death_ns <= time_ns) continue;
    if ((a.flags & (kDriverRemote | kDriverHostLocated)) == 0) {
      state.by_kind[index_of(a.kind)] += a.size_bytes;
    }
    if (a.kind == MemoryKind::kCode) state.code_bytes += a.size_bytes;
    if (!a.on_card()) continue;
    state.card_bytes += a.size_bytes;
    state.card_by_owner[a.owner] += a.size_bytes;
  }
  return state;
}

}  // namespace tidemark
