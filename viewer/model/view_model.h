// A trace prepared for drawing: lanes with their indexes, annotations, errors, and what was lost.
//
// Built once by the loading thread, immutable afterwards except for the text caches, which only the
// drawing thread uses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "analysis/minmax_pyramid.h"
#include "analysis/report.h"
#include "analysis/state_index.h"
#include "analysis/trace_model.h"
#include "viewer/model/frame_text.h"
#include "viewer/model/mark_lanes.h"

namespace tidemark::view {

// One device of one process.
struct Lane {
  uint32_t process = 0;  // index in TraceModel::processes
  const FrameworkModel* memory = nullptr;
  std::string name;          // "rank 3, cuda:0"
  std::string card;          // "NVIDIA H200, host", where known
  uint64_t total_bytes = 0;  // of the card; 0: not known
  MinMaxPyramid curves;
  StateIndex states;
};

struct OomPoint {
  uint32_t lane = 0;
  uint32_t event = 0;  // the last change before it
  int64_t time_ns = 0;
  uint64_t requested_bytes = 0;
  uint64_t device_free_bytes = 0;  // the driver's own errors do not tell
  uint32_t stack = 0;
  Layer layer = Layer::kFramework;
};

struct Model {
  TraceModel trace;
  Report report;
  std::vector<Lane> lanes;
  std::vector<MarkLanes> marks;         // per process
  std::vector<OomPoint> ooms;           // by time
  std::vector<std::string> losses;      // one sentence each
  mutable std::vector<FrameText> text;  // per process
  uint64_t events = 0;

  double span_ns() const { return static_cast<double>(trace.end_ns - trace.start_ns); }
  FrameText& text_of(const Lane& lane) const { return text[lane.process]; }
  const ProcessModel& process_of(const Lane& lane) const { return trace.processes[lane.process]; }
};

// `warnings` are those of opening the files.
Result<std::unique_ptr<const Model>> make_model(TraceModel trace,
                                                const std::vector<std::string>& warnings);

}  // namespace tidemark::view
