#include "collector/snapshot/host_traces.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

namespace tidemark {

namespace {

constexpr int64_t kMaxMicroseconds = INT64_MAX / 1000;
constexpr int64_t kHost = -1;  // no device

class HostMemory {
 public:
  HostMemory(const PickleDocument& document, TraceWriter& writer,
             const std::function<uint32_t(PickleValue)>& stack_of)
      : doc_(document), writer_(writer), stack_of_(stack_of) {}

  HostImport run() {
    const auto entries = doc_.items(doc_.find(doc_.root(), "host_traces"));
    std::optional<int64_t> first_us;
    for (const PickleValue entry : entries) {
      const auto us = doc_.as_i64(doc_.find(entry, "time_us"));
      if (us && *us >= 0 && *us <= kMaxMicroseconds)
        first_us = std::min(first_us.value_or(*us), *us);
    }
    if (!first_us) return result_;
    write_older_blocks(entries, *first_us * 1000);
    for (const PickleValue entry : entries) write_entry(entry);
    return result_;
  }

 private:
  // Blocks of the state that no entry pins were pinned before the first entry.
  void write_older_blocks(std::span<const PickleValue> entries, int64_t time_ns) {
    std::map<uint64_t, bool> given_out_first;  // by address: what its first entry says of before
    for (const PickleValue entry : entries) {
      const auto action = doc_.as_string(doc_.find(entry, "action")).value_or("");
      const auto address = doc_.as_address(doc_.find(entry, "addr"));
      if (address) given_out_first.try_emplace(*address, action.starts_with("free"));
      if (address && action == "segment_alloc") pinned_later_.insert(*address);
    }
    for (const PickleValue segment : doc_.items(doc_.find(doc_.root(), "host_segments"))) {
      const auto address = doc_.as_address(doc_.find(segment, "address"));
      const auto size = doc_.as_u64(doc_.find(segment, "total_size"));
      if (!address || !size) {
        ++result_.skipped;
        continue;
      }
      if (pinned_later_.contains(*address)) continue;
      const auto known = given_out_first.find(*address);
      const bool in_use = known != given_out_first.end()
                              ? known->second
                              : doc_.as_u64(doc_.find(segment, "allocated_size")).value_or(0) != 0;
      held_ += *size;
      in_use_ += in_use ? *size : 0;
      write_event(time_ns, DriverOperation::kAllocate, *address, *size,
                  stack_of_(doc_.find(segment, "frames")), kDriverSeeded);
    }
    write_totals(time_ns);
  }

  void write_entry(PickleValue entry) {
    const auto action = doc_.as_string(doc_.find(entry, "action")).value_or("");
    const auto address = doc_.as_address(doc_.find(entry, "addr"));
    const auto size = doc_.as_u64(doc_.find(entry, "size"));
    const auto us = doc_.as_i64(doc_.find(entry, "time_us"));
    if (!address || !size || !us || *us < 0 || *us > kMaxMicroseconds) {
      ++result_.skipped;
      return;
    }
    const int64_t time_ns = *us * 1000;
    const uint32_t stack = stack_of_(doc_.find(entry, "frames"));
    if (action == "segment_alloc") {
      held_ += *size;
      write_event(time_ns, DriverOperation::kAllocate, *address, *size, stack, 0);
    } else if (action == "segment_free") {
      held_ -= std::min(held_, *size);
      write_event(time_ns, DriverOperation::kFree, *address, 0, 0, 0);
    } else if (action == "alloc") {
      in_use_ += *size;
    } else if (action == "free_completed") {
      in_use_ -= std::min(in_use_, *size);
    } else if (action != "free_requested") {
      ++result_.skipped;
      return;
    }
    ++result_.events;
    write_totals(time_ns);
  }

  void write_event(int64_t time_ns, DriverOperation operation, uint64_t address, uint64_t size,
                   uint32_t stack, uint32_t flags) {
    DriverEvent event{};
    event.time_ns = time_ns;
    event.address = address;
    event.size_bytes = size;
    event.device = kHost;
    event.stack = stack;
    event.flags = flags;
    event.operation = operation;
    event.kind = MemoryKind::kPinned;
    writer_.append(event);
  }

  void write_totals(int64_t time_ns) {
    writer_.append(Counter{time_ns, in_use_, 0, kHost, CounterKind::kTorchPinnedInUse});
    writer_.append(Counter{time_ns, held_, 0, kHost, CounterKind::kTorchPinned});
  }

  const PickleDocument& doc_;
  TraceWriter& writer_;
  const std::function<uint32_t(PickleValue)>& stack_of_;
  std::set<uint64_t> pinned_later_;
  uint64_t held_ = 0;
  uint64_t in_use_ = 0;
  HostImport result_;
};

}  // namespace

HostImport import_host_memory(const PickleDocument& document, TraceWriter& writer,
                              const std::function<uint32_t(PickleValue)>& stack_of) {
  return HostMemory(document, writer, stack_of).run();
}

}  // namespace tidemark
