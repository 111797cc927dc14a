#include "analysis/load/driver_segments.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace tidemark {

namespace {

class SegmentFinder {
 public:
  explicit SegmentFinder(const Dictionary& names) : names_(names) {}

  void apply(const DriverEvent& e) {
    if (e.result != 0) return;
    switch (e.operation) {
      case DriverOperation::kAllocate:
        if (e.kind == MemoryKind::kDevice && is_allocators(e)) {
          live_[e.address] = e.size_bytes;
          put(e, FrameworkAction::kSegmentAlloc, e.address, e.size_bytes);
        }
        break;
      case DriverOperation::kFree:
        if (const auto it = live_.find(e.address); it != live_.end()) {
          put(e, FrameworkAction::kSegmentFree, it->first, it->second);
          live_.erase(it);
        }
        break;
      case DriverOperation::kCreate:
        if (is_allocators(e)) handles_[e.handle] = e.stack;
        break;
      case DriverOperation::kMap:
        if (const auto it = handles_.find(e.handle); it != handles_.end()) {
          mapped_[e.address] = e.size_bytes;
          DriverEvent with_stack = e;
          with_stack.stack = it->second;
          put(with_stack, FrameworkAction::kSegmentMap, e.address, e.size_bytes);
        }
        break;
      case DriverOperation::kUnmap:
        unmap(e);
        break;
      case DriverOperation::kRelease:
        handles_.erase(e.handle);  // its mappings are known by address
        break;
      default:
        break;
    }
  }

  std::vector<FrameworkEvent> take() { return std::move(found_); }

 private:
  void unmap(const DriverEvent& e) {
    auto it = mapped_.lower_bound(e.address);
    while (it != mapped_.end() && it->first - e.address < std::max<uint64_t>(e.size_bytes, 1)) {
      put(e, FrameworkAction::kSegmentUnmap, it->first, it->second);
      it = mapped_.erase(it);
    }
  }

  void put(const DriverEvent& e, FrameworkAction action, uint64_t address, uint64_t size) {
    FrameworkEvent event{};
    event.time_ns = e.time_ns;
    event.address = address;
    event.size_bytes = size;
    event.device = e.device;
    event.stack = e.stack;
    event.thread = e.thread;
    event.action = action;
    found_.push_back(event);
  }

  // Other parts of torch (symmetric memory, NCCL inside libtorch_cuda) also allocate from the
  // driver.
  bool is_allocators(const DriverEvent& e) {
    if (names_.string(e.owner) != "torch") return false;
    const auto [it, fresh] = by_stack_.try_emplace(e.stack, false);
    if (fresh) it->second = e.stack == 0 || passes_through(e.stack, "libc10_cuda");
    return it->second;
  }

  bool passes_through(uint32_t stack, std::string_view library) const {
    for (const uint32_t frame : names_.frames_of(stack)) {
      const std::string_view path = names_.string(names_.module(names_.frame(frame).module).path);
      if (path.find(library) != std::string_view::npos) return true;
    }
    return false;
  }

  const Dictionary& names_;
  std::map<uint64_t, uint64_t> live_;
  std::map<uint64_t, uint64_t> mapped_;
  std::unordered_map<uint64_t, uint32_t> handles_;  // -> stack of their creation
  std::unordered_map<uint32_t, bool> by_stack_;
  std::vector<FrameworkEvent> found_;
};

}  // namespace

std::vector<FrameworkEvent> torch_segments(std::span<const DriverEvent> events,
                                           const Dictionary& names, int64_t bridge_ns) {
  std::vector<DriverEvent> sorted;
  for (const DriverEvent& e : events) {
    if (e.time_ns < bridge_ns) sorted.push_back(e);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const DriverEvent& a, const DriverEvent& b) {
    return a.time_ns < b.time_ns;
  });
  SegmentFinder finder(names);
  for (const DriverEvent& e : sorted) finder.apply(e);
  return finder.take();
}

int64_t bridge_time(std::span<const Mark> marks, const Dictionary& names) {
  int64_t time = INT64_MAX;
  for (const Mark& mark : marks) {
    if (names.string(mark.domain) == "tidemark" && names.string(mark.name) == "torch bridge") {
      time = std::min(time, mark.time_ns);
    }
  }
  return time;
}

std::set<int64_t> devices_with_state(std::span<const Mark> marks, const Dictionary& names) {
  std::set<int64_t> devices;
  for (const Mark& mark : marks) {
    if (names.string(mark.domain) == "tidemark" && names.string(mark.name) == "torch state") {
      devices.insert(mark.device);
    }
  }
  return devices;
}

}  // namespace tidemark
