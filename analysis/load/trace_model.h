// A whole trace, ready for queries: its processes, their devices, names and allocators.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "analysis/events/event_blocks.h"
#include "analysis/history/allocation_history.h"
#include "analysis/history/driver_model.h"
#include "analysis/load/index_options.h"
#include "analysis/load/kept_window.h"
#include "analysis/load/precision.h"
#include "analysis/names/dictionary.h"
#include "analysis/names/labels.h"
#include "proto/base/result.h"
#include "proto/read/block_decoder.h"
#include "proto/read/unrecorded.h"

namespace tidemark {

struct ProcessModel {
  Process info{};
  // Its name, of a process without a rank in a trace of several files, which may have been merged;
  // else empty.
  std::string file;
  Dictionary names;
  std::vector<Device> devices;
  std::vector<Setting> settings;
  AllocatorRules rules;
  std::vector<AllocationHistory> framework;  // one per device that saw events or state
  DriverModel driver;
  // The driver's pools that PyTorch's tensors are in (the backend cudaMallocAsync); see
  // analysis/load/async_backend.h.
  std::set<uint32_t> torch_pools;
  std::vector<OutOfMemory> ooms;   // in order of time
  std::vector<Counter> counters;   // in order of time
  std::vector<Summary> summaries;  // in order of time; see analysis/insight/whole_run.h
  std::vector<Mark> marks;
  Labels labels;
  std::vector<Health> health;
  std::vector<Communicator> communicators;
  std::vector<NcclOperation> nccl;  // by group, with the times of the kernels that ran them
  ComputeTime compute;              // of its kernels
  Alignment clock{};                // applied to its times; kNone: they are unchanged
  std::vector<SegmentState> segment_states;  // at the end or beginning of the trace
  uint64_t kernels = 0;
  std::vector<Stretch> unrecorded;  // in which kernels were left out, to save time
  KeptWindow window;
  // Of everything that was recorded of it, or of its window: kernels come late, and some are of the
  // time before. It may end earlier than the trace.
  int64_t first_ns = INT64_MAX;
  int64_t last_ns = INT64_MIN;

  // The end of a snapshot is not that of its process.
  bool knows_its_end() const { return !counters.empty() && first_ns <= last_ns; }
  const Device* device(int64_t ordinal) const;
  const AllocationHistory* framework_on(int64_t ordinal) const;
  // Every device with any data.
  std::vector<int64_t> device_ordinals() const;
  // A snapshot without history: what was held when it was taken, and nothing of how it came about.
  bool is_state_only() const;
  // Whether the calls of the driver were recorded, from the beginning.
  bool records_driver() const;
  // Its trace had to be finished by somebody else.
  bool was_killed() const;
  // The nn.Module that a block of the framework belongs to, or else that ran when it was allocated.
  uint32_t nn_module_of(const Allocation& allocation) const;
  // The last value of a setting; empty: it has none.
  std::string_view setting(std::string_view key) const;
};

struct TraceModel {
  std::string path;
  std::vector<std::string> notes;  // on its files: left out, missing, not aligned
  bool incomplete = false;         // files of it are missing
  std::vector<ProcessModel> processes;
  std::map<BlockKind, uint64_t> rows_by_kind;
  Damage damage;
  uint64_t unknown_blocks = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  // New indexes being written to disk; destroying one waits until it is written.
  std::vector<std::shared_ptr<void>> indexing;
};

// Called with the fraction of the work done, 0 to 1.
using Progress = std::function<void(double)>;

// Loads one file, or the files of one job. Large ones are indexed, and from then on opened through
// their index. `watch` is shown the framework's events of what has no index yet, several files at a
// time.
Result<TraceModel> load_trace(std::span<const TraceReader> readers, const Progress& progress = {},
                              const IndexOptions& index = IndexOptions::from_environment(),
                              const EventWatch& watch = {});

}  // namespace tidemark
