// Memory is idle because every stream keeps its own free blocks.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "analysis/findings/rules.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

constexpr uint64_t kDefaultStream = 0;

struct StreamUse {
  uint64_t reserved = 0;       // at the reserved peak
  uint64_t stays = 0;          // not freed before the end: weights, or a library's workspace
  uint64_t requested = 0;      // in the whole run
  uint64_t communication = 0;  // of that
  uint64_t turns = 0;          // runs of allocations without one of another stream between them
  std::unordered_map<uint32_t, uint64_t> by_stack;
};
using Streams = std::map<uint64_t, StreamUse>;

// What is freed after the last allocation stayed as long as the program needed anything.
bool stays(const AllocationHistory& model, const Allocation& a) {
  return a.release == kNever || a.release > model.allocations.birth(model.allocations.size() - 1);
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
    if (stays(*d.model, a)) use.stays += a.block_bytes;
    if (d.roles->of(a.stack) == StackRole::kCommunication) use.communication += a.block_bytes;
    use.by_stack[a.stack] += a.block_bytes;
    if (last != &use) ++use.turns;
    last = &use;
  }
  return streams;
}

// What one stream in place of these would have to reserve: the most that they ever use together.
// Beside the default stream, what stays is a library's workspace, which every stream has.
uint64_t needed_together(const DeviceEvidence& d, const Streams& streams) {
  uint64_t largest = 0;
  uint64_t all_stay = 0;
  uint64_t most_stay = 0;
  for (const auto& [stream, use] : streams) {
    largest = std::max(largest, use.reserved);
    all_stay += use.stays;
    most_stay = std::max(most_stay, use.stays);
  }
  uint64_t level = 0;
  uint64_t most = 0;
  for (uint32_t e = 0; e <= d.model->reserved_peak.event; ++e) {
    d.model->passed(e);
    const Change change = d.model->change[e];
    const bool appears = change == Change::kBirth || change == Change::kPending;
    if (!appears && change != Change::kDeath) continue;
    const Allocation a = d.model->allocations[d.model->subject[e]];
    if (a.pool != 0 || stays(*d.model, a) || !streams.contains(a.stream)) continue;
    level = appears ? level + a.block_bytes : level - a.block_bytes;
    most = std::max(most, level);
  }
  return std::max(largest, most + (streams.contains(kDefaultStream) ? all_stay : most_stay));
}

}  // namespace

void find_stream_pools(const Evidence& evidence, std::vector<Finding>& out) {
  constexpr uint64_t kWorthSaying = uint64_t{64} << 20;
  for (const DeviceEvidence& d : evidence.devices) {
    if (!d.has_caching_allocator() || d.model->event_count() == 0) continue;
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
    const uint64_t saved = reserved - std::min(reserved, needed_together(d, streams));
    if (saved < kWorthSaying || saved < d.model->reserved_peak.bytes / 20) continue;
    uint32_t most = 0;
    uint64_t bytes = 0;
    for (const auto& [stream, use] : streams) {
      for (const auto& [stack, sum] : use.by_stack) {
        if (sum < bytes || (sum == bytes && stack > most)) continue;
        most = stack;
        bytes = sum;
      }
    }
    // Streams that work once, as when graphs are warmed up, cost less than those that take turns.
    const auto recurring = std::count_if(streams.begin(), streams.end(),
                                         [](const auto& entry) { return entry.second.turns > 1; });
    const bool matters = recurring > 1 && saved >= d.model->reserved_peak.bytes / 10;
    Finding f = d.finding(
        "stream_pools", matters ? kWarning : kInfo,
        fmt::format("{} streams reserve {} and never use it all at once: free blocks of one stream "
                    "cannot be used on another",
                    grouped(streams.size()), size_text(reserved)));
    f.evidence = {{"streams", streams.size()},
                  {"reserved_bytes", reserved},
                  {"reserved_peak_bytes", d.model->reserved_peak.bytes}};
    f.frames = d.process->names.stack_text(most);
    f.advice.push_back(
        {"share_stream",
         fmt::format(
             "run this work on one stream, or as few as must overlap: up to {} less reserved",
             size_text(saved)),
         saved});
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
