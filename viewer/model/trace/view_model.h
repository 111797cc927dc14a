// A trace prepared for drawing: lanes with their indexes, annotations, errors, and what was lost.
//
// The loading thread builds it. Panels and background work get it as const. Only its owner, the
// Loader, changes it afterwards: its thread finds the categories of the blocks, and on the drawing
// thread it attaches the insight and the report, which take longer than everything else. Until then
// blocks have only their recorded categories.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "analysis/history/minmax_pyramid.h"
#include "analysis/history/state_index.h"
#include "analysis/insight/card/ledger.h"
#include "analysis/insight/card/pinned.h"
#include "analysis/load/trace_model.h"
#include "analysis/report/report.h"
#include "collector/trace_source.h"
#include "viewer/model/frame_text.h"
#include "viewer/model/job_overview.h"
#include "viewer/model/timeline/activity.h"
#include "viewer/model/timeline/mark_lanes.h"
#include "viewer/model/timeline/step_curve.h"

namespace tidemark::view {

// What one owner (nccl, cublas, the program itself) holds on the card.
struct OwnerCurve {
  uint32_t owner = 0;  // string
  std::string name;
  StepCurve bytes;
};

// One device of one process.
struct Lane {
  uint32_t process = 0;  // index in TraceModel::processes
  // The framework's allocator, or the driver's allocations where no framework was recorded.
  const AllocationHistory* memory = nullptr;
  bool of_driver = false;
  std::string name;          // "rank 3, cuda:0"
  std::string card;          // "NVIDIA H200, host", where known
  uint64_t total_bytes = 0;  // of the card; 0: not known
  MinMaxPyramid curves;
  StateIndex states;
  std::unique_ptr<const LedgerSource> ledger;
  bool requests_known = true;      // otherwise there is no curve of requested bytes
  bool private_pools = false;      // some segment is of one
  StepCurve used;                  // of the whole card, from NVML
  std::vector<OwnerCurve> owners;  // other than the framework; most bytes first

  Steps driver_steps;  // of a lane without a framework

  int64_t device() const { return memory->device; }
  // What the card reports as used, at the sample that the ledger of this time belongs to; 0: not
  // known.
  uint64_t card_used_at(int64_t time_ns) const { return ledger->at(time_ns).device_used_bytes; }
};

// A failed request, and the lane in which it is drawn; `event` is one of that lane's history.
struct OomPoint : FailedAllocation {
  uint32_t lane = 0;
};

// Where the rows of a process are; reader is null where there are no files.
struct RowsOfProcess {
  const TraceReader* reader = nullptr;
  uint32_t id = 0;
};

// The results of a pass over all events.
struct Insight {
  bool categories_known = false;
  std::shared_ptr<Groundwork> ground;  // the report is made from it
};

// Owned by a shared_ptr wherever panels work in the background.
struct Model : std::enable_shared_from_this<Model> {
  TraceModel trace;
  // Of lanes without a framework.
  std::vector<std::unique_ptr<const AllocationHistory>> driver_models;
  std::vector<Lane> lanes;
  std::vector<MarkLanes> marks;       // per process
  std::vector<Activity> activity;     // per process: kernels and collectives
  std::vector<OomPoint> ooms;         // by time
  std::vector<FrameText> text;        // per process
  std::vector<PinnedHistory> pinned;  // per process
  uint64_t events = 0;
  std::vector<char16_t> characters;  // of all names, outside of Latin scripts; sorted
  // The files, for what is read on demand; null in models that were made without files.
  std::shared_ptr<const TraceSource> source;
  std::vector<RowsOfProcess> rows;  // per process
  // Of a job of very many ranks: all of them; the trace has those that are looked at. Else null.
  std::shared_ptr<const JobOverview> job;

  // What attach() changes; for the drawing thread only.
  bool categories_known = false;
  Report report;  // before it is attached: only the comparison of the ranks
  bool report_ready = false;
  std::vector<std::string> losses;  // one sentence each; the report adds more

  double span_ns() const { return static_cast<double>(trace.end_ns - trace.start_ns); }
  // Nothing is known of a process after its recording.
  int64_t end_of(const ProcessModel& process) const;
  int64_t end_of(const Lane& lane) const { return end_of(process_of(lane)); }
  const FrameText& text_of(const Lane& lane) const { return text[lane.process]; }
  const ProcessModel& process_of(const Lane& lane) const { return trace.processes[lane.process]; }
  // The error to show first: the last one of the lane that failed first, where the program gave up.
  size_t oom_to_show() const;
  // The lane of a device of a process; none: UINT32_MAX.
  uint32_t lane_of(uint32_t process, int64_t device) const;
  // Steps, phases, limit of a lane; null until the report is attached.
  const DeviceReport* report_of(const Lane& lane) const;
  const Steps& steps_of(const Lane& lane) const;
  // ", step 17" at an event; empty outside of the steps.
  std::string comma_step(const Lane& lane, uint32_t event) const;
  void attach(const Insight& insight);
  void attach(Report made);
};

// The last part of its path.
std::string short_name(const Model& model);
// As much of the end of its path as tells it from the other's: "b.tmk", "tuned/run.tmk".
std::string name_beside(const Model& model, const Model& other);

// Everything that can be drawn without a pass over all events. `warnings` are from opening the
// files. Without a source there are no kernels.
std::unique_ptr<Model> prepare_model(TraceModel trace, const std::vector<std::string>& warnings,
                                     std::shared_ptr<const TraceSource> source = {});
// The same for some ranks of a large job.
std::unique_ptr<Model> prepare_model(OpenedJob opened);
// Finds the category of every block, while the model may be drawn.
Insight look_through(Model& model);
// Adds insight and report.
Result<std::unique_ptr<const Model>> make_model(std::unique_ptr<Model> model);
Result<std::unique_ptr<const Model>> make_model(TraceModel trace,
                                                const std::vector<std::string>& warnings,
                                                std::shared_ptr<const TraceSource> source = {});

}  // namespace tidemark::view
