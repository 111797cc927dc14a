#include "export/snapshot/snapshot_state.h"

#include <algorithm>

#include "export/counter_samples.h"

namespace tidemark {

namespace {

constexpr uint64_t kSmallBuffer = 2 << 20;  // PyTorch's segments for requests up to 1 MiB
constexpr uint64_t kSmallSize = 1 << 20;

// The state stored in the file, in file order; empty when it is older than the events.
std::vector<SnapshotSegment> recorded_state(const ExportProcess& process) {
  std::vector<SnapshotSegment> segments;
  int64_t state_ns = INT64_MIN;
  int64_t last_event_ns = INT64_MIN;
  for (const BlockRef& ref : process.reader->blocks()) {
    if (ref.process == process.id && ref.kind == BlockKind::kFrameworkEvents) {
      last_event_ns = std::max(last_event_ns, ref.last_ns);
    }
  }
  BlockDecoder decoder(*process.reader);
  for_each_block<SegmentState>(*process.reader, decoder, process.id,
                               [&](auto rows, const BlockRef&) {
                                 for (const SegmentState& s : rows) {
                                   segments.push_back({s, {}});
                                   state_ns = std::max(state_ns, s.time_ns);
                                 }
                               });
  if (state_ns < last_event_ns) return {};
  std::vector<size_t> by_address(segments.size());
  for (size_t i = 0; i < by_address.size(); ++i) by_address[i] = i;
  const auto place = [&](size_t i) {
    return std::pair(segments[i].segment.device, segments[i].segment.address);
  };
  std::sort(by_address.begin(), by_address.end(),
            [&](size_t a, size_t b) { return place(a) < place(b); });
  for_each_block<BlockState>(*process.reader, decoder, process.id, [&](auto rows, const BlockRef&) {
    for (const BlockState& b : rows) {
      const std::pair at(b.device, b.address);
      auto next = std::upper_bound(by_address.begin(), by_address.end(), at,
                                   [&](const auto& key, size_t i) { return key < place(i); });
      if (next != by_address.begin()) segments[*std::prev(next)].blocks.push_back(b);
    }
  });
  return segments;
}

BlockState block_of(const Allocation& a, const MemoryState& state, int64_t device) {
  BlockState b{};
  b.time_ns = state.time_ns;
  b.address = a.address;
  b.size_bytes = a.block_bytes;
  b.requested_bytes = a.requested_bytes != 0 ? a.requested_bytes : a.block_bytes;
  b.device = device;
  b.stack = a.stack;
  b.condition =
      a.release <= state.event ? BlockCondition::kPendingFree : BlockCondition::kAllocated;
  return b;
}

SnapshotSegment segment_of(const AllocationHistory& model, const MemoryState& state,
                           const SegmentRange& range) {
  SnapshotSegment out;
  const SegmentChange& change = model.segment_changes[range.change];
  out.segment.time_ns = state.time_ns;
  out.segment.address = range.address;
  out.segment.size_bytes = range.size_bytes;
  out.segment.stream = range.stream;
  out.segment.device = model.device;
  out.segment.pool = change.pool;
  out.segment.stack = change.stack;
  if (range.expandable) out.segment.flags |= kSegmentExpandable;
  return out;
}

void add_up(SnapshotSegment& s) {
  bool small_blocks = false;
  for (const BlockState& b : s.blocks) {
    if (b.condition == BlockCondition::kFree) continue;
    small_blocks |= b.size_bytes <= kSmallSize;
    s.segment.active_bytes += b.size_bytes;
    s.segment.requested_bytes += b.requested_bytes;
    if (b.condition == BlockCondition::kAllocated) s.segment.allocated_bytes += b.size_bytes;
  }
  // Events do not say whether a segment is of the small or the large pool. The size of a fixed
  // segment tells; for an expandable range, the sizes of its blocks do.
  const bool fixed = (s.segment.flags & kSegmentExpandable) == 0;
  if (fixed ? s.segment.size_bytes == kSmallBuffer : small_blocks) s.segment.flags |= kSegmentSmall;
}

void replayed_state(const AllocationHistory& model, uint32_t event,
                    std::vector<SnapshotSegment>& out) {
  const MemoryState state = state_after(model, event);
  size_t live = 0;
  size_t hole = 0;
  // Each block outside of all known segments is shown as a segment.
  const auto put_strays = [&](uint64_t before) {
    for (; live < state.live.size(); ++live) {
      const Allocation& a = model.allocations[state.live[live]];
      if (a.address >= before) return;
      SnapshotSegment stray;
      stray.segment.time_ns = state.time_ns;
      stray.segment.address = a.address;
      stray.segment.size_bytes = a.block_bytes;
      stray.segment.stream = a.stream;
      stray.segment.device = model.device;
      stray.blocks.push_back(block_of(a, state, model.device));
      add_up(stray);
      out.push_back(std::move(stray));
    }
  };
  for (uint32_t s = 0; s < state.segments.size(); ++s) {
    const SegmentRange& range = state.segments[s];
    put_strays(range.address);
    SnapshotSegment segment = segment_of(model, state, range);
    for (; live < state.live.size(); ++live) {
      const Allocation& a = model.allocations[state.live[live]];
      if (a.address - range.address >= range.size_bytes) break;
      segment.blocks.push_back(block_of(a, state, model.device));
    }
    for (; hole < state.holes.size() && state.holes[hole].segment == s; ++hole) {
      BlockState free{};
      free.time_ns = state.time_ns;
      free.address = state.holes[hole].address;
      free.size_bytes = state.holes[hole].size_bytes;
      free.device = model.device;
      free.condition = BlockCondition::kFree;
      segment.blocks.push_back(free);
    }
    std::sort(segment.blocks.begin(), segment.blocks.end(),
              [](const BlockState& a, const BlockState& b) { return a.address < b.address; });
    add_up(segment);
    out.push_back(std::move(segment));
  }
  put_strays(UINT64_MAX);
}

}  // namespace

std::vector<SnapshotSegment> snapshot_state(const ExportProcess& process, const TimeRange& range) {
  if (range.end_ns == INT64_MAX) {
    std::vector<SnapshotSegment> recorded = recorded_state(process);
    if (!recorded.empty()) return recorded;
  }
  std::vector<SnapshotSegment> out;
  for (const AllocationHistory& model : process.model->framework) {
    const uint32_t end = events_in(model, range).end;
    if (end != 0) replayed_state(model, end - 1, out);
  }
  return out;
}

}  // namespace tidemark
