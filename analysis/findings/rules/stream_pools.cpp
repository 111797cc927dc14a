// Memory is idle because every stream keeps its own free blocks, or because blocks that were freed
// wait for another stream.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "analysis/findings/advice.h"
#include "analysis/findings/largest_stack.h"
#include "analysis/findings/rules.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kDefaultStream = 0;

struct StreamUse {
  uint64_t reserved = 0;       // at the reserved peak
  uint64_t workspaces = 0;     // of libraries, one for each stream
  uint64_t requested = 0;      // in the whole run
  uint64_t communication = 0;  // of that
  uint64_t turns = 0;          // runs of allocations without one of another stream between them
  std::unordered_map<uint32_t, uint64_t> by_stack;
};
using Streams = std::map<uint64_t, StreamUse>;

bool is_much(const DeviceEvidence& d, uint64_t saved) {
  constexpr uint64_t kWorthSaying = uint64_t{64} << 20;
  return saved >= kWorthSaying && saved >= d.model->reserved_peak.bytes / 20;
}

Streams streams_of(const DeviceEvidence& d) {
  Streams streams;
  const MemoryState state = state_after(*d.model, d.model->reserved_peak.event);
  for (const SegmentRange& s : state.segments) {
    if (d.model->segment_changes[s.change].pool != 0) continue;
    streams[s.stream].reserved += s.size_bytes;
  }
  if (streams.size() < 2) return streams;
  const StreamUse* last = nullptr;
  for (size_t i = 0; i < d.model->allocations.size(); ++i) {
    d.model->passed(i);
    const Allocation a = d.model->allocations[i];
    const auto found = streams.find(a.stream);
    if (a.pool != 0 || found == streams.end()) continue;
    StreamUse& use = found->second;
    use.requested += a.block_bytes;
    if (d.categories.of[i] == Category::kWorkspace) use.workspaces += a.block_bytes;
    if (d.roles->of(a.stack) == StackRole::kCommunication) use.communication += a.block_bytes;
    use.by_stack[a.stack] += a.block_bytes;
    if (last != &use) ++use.turns;
    last = &use;
  }
  return streams;
}

// What is saved by one stream in place of these. It needs one workspace of each library.
uint64_t saved_by_sharing(const DeviceEvidence& d, size_t devices, const Streams& streams) {
  uint64_t reserved = 0;
  uint64_t largest = 0;
  auto keeps = streams.begin();
  for (auto it = streams.begin(); it != streams.end(); ++it) {
    reserved += it->second.reserved;
    largest = std::max(largest, it->second.reserved);
    if (it->second.workspaces > keeps->second.workspaces) keeps = it;
  }
  if (!is_much(d, reserved - largest)) return 0;  // at best
  const auto share = [&](uint32_t allocation, RequestedBlock& request) {
    if (request.pool != 0 || !streams.contains(request.stream)) return true;
    const bool repeated = allocation != kNever && request.stream != keeps->first &&
                          d.categories.of[allocation] == Category::kWorkspace;
    request.stream = keeps->first;
    return !repeated;
  };
  return saved_by_change(d, devices, share).value_or(0);
}

// Blocks that the program freed, but that another stream may still use (Tensor.record_stream).
void find_waiting(const DeviceEvidence& d, std::vector<Finding>& out) {
  const uint32_t event = d.model->reserved_peak.event;
  const MemoryTotals totals = d.model->totals_after(event);
  if (!is_much(d, totals.pending()) || totals.pending() < totals.reserved / 5) return;
  const MemoryState state = state_after(*d.model, event);
  std::map<uint32_t, uint64_t> by_stack;
  uint64_t blocks = 0;
  for (const uint32_t i : state.live) {
    if (!state.is_pending(*d.model, i)) continue;
    by_stack[d.model->allocations.stack(i)] += d.model->allocations.block_bytes(i);
    ++blocks;
  }
  const uint64_t bytes = totals.pending();
  Finding f =
      d.finding("stream_pools", kWarning,
                fmt::format("{} of what is reserved at the peak were freed, but wait for another "
                            "stream (Tensor.record_stream): {}",
                            size_text(bytes), counted(blocks, "block")));
  f.evidence = {{"pending_bytes", bytes},
                {"blocks", blocks},
                {"reserved_peak_bytes", d.model->reserved_peak.bytes}};
  f.frames = d.process->names.stack_text(largest_stack(by_stack));
  f.advice.push_back({"wait_for_stream",
                      fmt::format("let the stream that allocates wait for the other one "
                                  "(wait_stream, wait_event) before such a tensor is dropped, in "
                                  "place of record_stream, or keep fewer of them on their way: "
                                  "saves up to {}",
                                  size_text(bytes)),
                      bytes});
  out.push_back(std::move(f));
}

}  // namespace

void find_stream_pools(const Evidence& evidence, std::vector<Finding>& out) {
  for (const DeviceEvidence& d : evidence.devices) {
    if (!d.has_caching_allocator() || d.model->event_count() == 0) continue;
    find_waiting(d, out);
    Streams streams = streams_of(d);
    // Streams of a communication library are not the program's to choose.
    std::erase_if(streams, [](const auto& entry) {
      return entry.second.communication > entry.second.requested / 2;
    });
    // The default stream and one more are what a program with any overlap needs.
    if (streams.size() > 2) streams.erase(kDefaultStream);
    if (streams.size() < 2) continue;
    uint64_t reserved = 0;
    for (const auto& [stream, use] : streams) reserved += use.reserved;
    const uint64_t saved = saved_by_sharing(d, evidence.devices.size(), streams);
    if (!is_much(d, saved)) continue;
    std::map<uint32_t, uint64_t> by_stack;
    for (const auto& [stream, use] : streams) {
      for (const auto& [stack, bytes] : use.by_stack) by_stack[stack] += bytes;
    }
    // Streams that work once, as when graphs are warmed up, cost less than those that take turns.
    const auto recurring = std::count_if(streams.begin(), streams.end(),
                                         [](const auto& entry) { return entry.second.turns > 1; });
    const bool matters = recurring > 1 && saved >= d.model->reserved_peak.bytes / 10;
    Finding f = d.finding(
        "stream_pools", matters ? kWarning : kInfo,
        fmt::format("{} streams reserve {}: each has a cache and workspaces of its own, which the "
                    "others cannot use",
                    grouped(streams.size()), size_text(reserved)));
    f.evidence = {{"streams", streams.size()},
                  {"reserved_bytes", reserved},
                  {"reserved_peak_bytes", d.model->reserved_peak.bytes}};
    f.frames = d.process->names.stack_text(largest_stack(by_stack));
    f.advice.push_back({"share_stream",
                        fmt::format("run this work on one stream, or as few as must overlap: on "
                                    "one, {} less is reserved in "
                                    "a replay of this run's requests",
                                    size_text(saved)),
                        saved});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
