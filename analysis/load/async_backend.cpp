#include "analysis/load/async_backend.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>

namespace tidemark {

namespace {

constexpr uint32_t kOutOfMemoryResult = 2;  // CUDA_ERROR_OUT_OF_MEMORY

bool allocates_from_pool(const DriverEvent& e) {
  return e.operation == DriverOperation::kAllocate && e.kind == MemoryKind::kStreamOrdered &&
         (e.flags & kDriverOwn) == 0;
}

// The greatest value over the recording; each row is the most since the last reset.
uint64_t greatest(const ProcessModel& process, CounterKind kind, int64_t device) {
  uint64_t most = 0;
  for (const Counter& c : process.counters) {
    const bool counts =
        c.subject == 0 || process.torch_pools.contains(static_cast<uint32_t>(c.subject));
    if (c.kind == kind && c.device == device && counts) most = std::max(most, c.value);
  }
  return most;
}

// From 2.14 on the statistics of this backend include the memory of graphs.
bool counts_graphs(const ProcessModel& process) {
  for (const Setting& s : process.settings) {
    const std::string_view value = process.names.string(s.value);
    if (process.names.string(s.key) != "torch" || !value.starts_with("2.")) continue;
    uint32_t minor = 0;
    std::from_chars(value.data() + 2, value.data() + value.size(), minor);
    return minor >= 14;
  }
  return false;
}

class AsyncBackend {
 public:
  AsyncBackend(const ProcessModel& process, const std::vector<DriverEvent>& events)
      : process_(process), events_(events) {}

  std::vector<FrameworkEvent> run() {
    for (size_t i = 0; i < events_.size(); ++i) {
      const DriverEvent& e = events_[i];
      if (is_allocation(e)) {
        if (e.result == 0) {
          allocate(e);
        } else if (e.result == kOutOfMemoryResult && !is_repeated(i)) {
          fail(e);
        }
      } else if (e.operation == DriverOperation::kFree && e.result == 0) {
        free(e);
      }
    }
    return std::move(out_);
  }

 private:
  struct Block {
    uint64_t bytes = 0;
    int64_t device = 0;
  };

  static uint64_t rounded(uint64_t bytes, uint64_t step) {
    return (bytes + step - 1) / step * step;
  }

  bool is_allocation(const DriverEvent& e) const {
    return allocates_from_pool(e) && process_.torch_pools.contains(e.pool);
  }

  // As for the native allocator: the Python frames, where there are any. They are the outer ones.
  uint32_t python_part(uint32_t stack) {
    const auto [known, fresh] = python_parts_.try_emplace(stack, stack);
    if (!fresh) return known->second;
    const Dictionary& names = process_.names;
    uint32_t part = stack;
    while (part != 0 && names.frame(names.stack(part).frame).kind != FrameKind::kPython) {
      part = names.stack(part).parent;
    }
    if (part != 0) known->second = part;
    return known->second;
  }

  FrameworkEvent row(const DriverEvent& e, int64_t device, FrameworkAction action) {
    FrameworkEvent event{};
    event.time_ns = e.time_ns;
    event.address = e.address;
    event.size_bytes = e.size_bytes;
    event.stream = e.stream;
    event.device = device;
    event.stack = python_part(e.stack);
    event.thread = e.thread;
    event.action = action;
    return event;
  }

  void allocate(const DriverEvent& e) {
    const uint64_t bytes = rounded(e.size_bytes, step_of(e.device));
    if (!live_.try_emplace(e.address, Block{bytes, e.device}).second) return;
    FrameworkEvent segment = row(e, e.device, FrameworkAction::kSegmentAlloc);
    segment.size_bytes = bytes;
    out_.push_back(segment);
    FrameworkEvent block = row(e, e.device, FrameworkAction::kAlloc);
    block.block_bytes = bytes;
    out_.push_back(block);
  }

  void free(const DriverEvent& e) {
    const auto it = live_.find(e.address);
    if (it == live_.end()) return;
    FrameworkEvent event = row(e, it->second.device, FrameworkAction::kFreeCompleted);
    event.size_bytes = it->second.bytes;
    out_.push_back(event);
    event.action = FrameworkAction::kSegmentFree;
    out_.push_back(event);
    live_.erase(it);
  }

  void fail(const DriverEvent& e) {
    FrameworkEvent event = row(e, e.device, FrameworkAction::kOutOfMemory);
    for (const OutOfMemory& oom : process_.ooms) {
      if (oom.time_ns == e.time_ns && oom.device == e.device) event.address = oom.device_free_bytes;
    }
    out_.push_back(event);
  }

  // From 2.14 on the backend trims the pool and tries once more: the second answer counts.
  bool is_repeated(size_t refused) const {
    const DriverEvent& first = events_[refused];
    bool trimmed = false;
    for (size_t i = refused + 1; i < events_.size(); ++i) {
      const DriverEvent& e = events_[i];
      if (e.thread != first.thread) continue;
      trimmed |= e.operation == DriverOperation::kPoolTrim;
      if (is_allocation(e)) return trimmed && e.size_bytes == first.size_bytes;
    }
    return false;
  }

  // The driver rounds what it gives out. By how much is seen from its mark, if the sizes alone
  // explain it.
  uint64_t step_of(int64_t device) {
    constexpr std::array<uint64_t, 6> kSteps = {512, 1, 256, 4096, 65536, 2 << 20};
    const auto [known, fresh] = steps_.try_emplace(device, kSteps.front());
    if (!fresh) return known->second;
    const uint64_t mark = greatest(process_, CounterKind::kPoolUsedHigh, device);
    const auto fits = std::find_if(kSteps.begin(), kSteps.end(), [&](uint64_t step) {
      return mark != 0 && peak_with(device, step) == mark;
    });
    if (fits != kSteps.end()) known->second = *fits;
    return known->second;
  }

  uint64_t peak_with(int64_t device, uint64_t step) const {
    std::map<uint64_t, uint64_t> live;
    uint64_t now = 0;
    uint64_t most = 0;
    for (const DriverEvent& e : events_) {
      if (e.result != 0) continue;
      if (is_allocation(e) && e.device == device) {
        const auto [block, fresh] = live.try_emplace(e.address, rounded(e.size_bytes, step));
        if (fresh) now += block->second;
        most = std::max(most, now);
      } else if (e.operation == DriverOperation::kFree) {
        const auto block = live.find(e.address);
        if (block == live.end()) continue;
        now -= block->second;
        live.erase(block);
      }
    }
    return most;
  }

  const ProcessModel& process_;
  const std::vector<DriverEvent>& events_;
  std::map<uint64_t, Block> live_;
  std::map<int64_t, uint64_t> steps_;  // by device
  std::map<uint32_t, uint32_t> python_parts_;
  std::vector<FrameworkEvent> out_;
};

}  // namespace

std::set<uint32_t> pools_of_torch(std::span<const DriverEvent> events, const Dictionary& names) {
  std::set<uint32_t> pools;
  for (const DriverEvent& e : events) {
    if (allocates_from_pool(e) && names.string(e.owner) == "torch") pools.insert(e.pool);
  }
  return pools;
}

std::vector<FrameworkEvent> async_backend_events(std::span<const DriverEvent> events,
                                                 const ProcessModel& process) {
  std::vector<DriverEvent> sorted(events.begin(), events.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const DriverEvent& a, const DriverEvent& b) {
    return a.time_ns < b.time_ns;
  });
  return AsyncBackend(process, sorted).run();
}

void apply_pool_marks(ProcessModel& process) {
  const bool graphs = counts_graphs(process);
  for (AllocationHistory& history : process.framework) {
    const auto mark = [&](CounterKind of_pool, CounterKind of_graphs) {
      const uint64_t most = greatest(process, of_pool, history.device);
      return most + (graphs ? greatest(process, of_graphs, history.device) : 0);
    };
    const uint64_t used = mark(CounterKind::kPoolUsedHigh, CounterKind::kGraphUsedHigh);
    const uint64_t reserved = mark(CounterKind::kPoolReservedHigh, CounterKind::kGraphReservedHigh);
    if (used != 0) history.allocated_peak.bytes = used;
    if (reserved == 0) continue;
    history.reserved_peak = history.allocated_peak;  // when it was reached is not known
    history.reserved_peak.bytes = reserved;
  }
}

}  // namespace tidemark
