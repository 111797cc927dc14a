// Replays the framework events of one process into a history for each of its devices.
//
// Where the trace holds the allocator's full state at a later time, the events are first undone
// from it, backwards (analysis/history/seed.h): that gives the state before the first event.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "analysis/events/event_blocks.h"
#include "analysis/history/history_replay.h"
#include "analysis/load/trace_index.h"
#include "analysis/load/trace_model.h"
#include "proto/read/block_decoder.h"

namespace tidemark {

class EventReplay {
 public:
  // Events from other sources than the framework's own table.
  struct OtherEvents {
    std::vector<FrameworkEvent> segments;  // of an allocator that does not report them
    std::vector<FrameworkEvent> async;     // of the backend cudaMallocAsync
  };

  // `process` has everything but its histories. `writer` stores them in files, if given. `advance`
  // is told of each block that was read: twice, if there is a state to begin with.
  // `splits_work`: decoding, replaying and storing are done by three threads. `watch` is shown the
  // rows once, in the order of the file.
  EventReplay(const TraceReader& reader, uint32_t id, const ProcessModel& process,
              OtherEvents others, TraceIndexWriter* writer,
              const std::function<void(uint64_t)>& advance, bool splits_work,
              const EventWatch& watch);

  // Call once. In the order of the devices.
  std::vector<AllocationHistory> run();
  // Found by run().
  const Damage& damage() const { return damage_; }

 private:
  struct DeviceState {
    SeedState seed;
    int64_t state_ns = INT64_MIN;  // of the full state; INT64_MIN: there is none
    int64_t first_ns = INT64_MAX;  // of the first event, in file order; INT64_MAX: not known
    std::optional<HistoryReplay> replay;
  };

  void read_meanings();
  void read_states();
  void seed_segments_of_driver(const std::map<int64_t, int64_t>& blocks_ns);
  bool has_later_state() const;
  void undo_events();
  void replay_seeds();
  void replay_events();
  void replay_snapshot();
  void replay_capture();
  void take(std::span<const FrameworkEvent> events);
  void take(const FrameworkEvent& event);
  // Null if there are too many.
  DeviceState* device(int64_t ordinal);
  HistoryReplay& replay_of(DeviceState& device, int64_t ordinal);
  int64_t seed_time(const DeviceState& device) const;

  bool is_snapshot() const { return process_.info.source != Source::kCapture; }

  const TraceReader& reader_;
  uint32_t id_;
  const ProcessModel& process_;
  OtherEvents others_;
  TraceIndexWriter* writer_;
  const std::function<void(uint64_t)>& advance_;
  bool splits_work_;
  const EventWatch& watch_;
  std::vector<BlockRef> blocks_;
  std::vector<StackMeaning> meanings_;  // empty: no stack names an nn.Module
  Damage damage_;
  std::map<int64_t, DeviceState> devices_;
  DeviceState* last_ = nullptr;  // that was asked for
  int64_t last_ordinal_ = 0;
  std::optional<HistoryThread>
      columns_;                 // of a long history; ends before the replays are destroyed
  int64_t first_ns_ = 0;        // of all blocks
  uint64_t segment_bytes_ = 0;  // of the last segment
};

}  // namespace tidemark
