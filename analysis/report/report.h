// The content of `tidemark report`, as data. export/report/ renders it as text, JSON and HTML.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "analysis/findings/finding.h"
#include "analysis/history/curve.h"
#include "analysis/history/memory_state.h"
#include "analysis/insight/card/ledger.h"
#include "analysis/insight/card/limit.h"
#include "analysis/insight/card/pinned.h"
#include "analysis/insight/categories/categories.h"
#include "analysis/insight/fragmentation.h"
#include "analysis/insight/module_shares.h"
#include "analysis/insight/peak.h"
#include "analysis/insight/phases.h"
#include "analysis/insight/trained_weights.h"
#include "analysis/insight/whole_run.h"
#include "analysis/load/trace_model.h"
#include "analysis/ranks/ranks.h"

namespace tidemark {

struct KindShare {
  MemoryKind kind = MemoryKind::kNone;
  uint64_t peak_bytes = 0;
};

// Blocks that the program gave a name.
struct LabelShare {
  std::string label;
  uint64_t bytes = 0;
  uint64_t count = 0;
};

// A failed request, and the memory of its device at that time.
struct OomReport : FailedAllocation {
  uint64_t allocated_bytes = 0;
  uint64_t pending_bytes = 0;  // freed, but another stream may still use it
  uint64_t reserved_bytes = 0;
  uint64_t largest_hole_bytes = 0;  // of those that the request could have used
  std::vector<std::string> frames;
};

// What the driver refused a library, after which the process went on.
struct LibraryRefusals {
  std::string library;
  size_t count = 0;
  uint64_t largest_bytes = 0;
  int64_t last_ns = 0;
};

// The allocation that reached this level.
struct PushReport {
  uint64_t bytes = 0;
  std::vector<std::string> frames;
};

struct GrowthShare {
  double bytes_per_step = 0;
  uint64_t held_bytes = 0;
  uint64_t held_count = 0;
  std::vector<std::string> frames;
};

struct StepReport {
  uint64_t count = 0;
  std::optional<uint64_t> before = 0;  // steps of the run before a kept window; nothing: not known
  int64_t period_ns = 0;
  double growth_bytes_per_step = 0;
  StepSource source = StepSource::kNone;
  double confidence = 0;
  uint64_t full_at_step = 0;  // of the run; 0: not foreseeable, or how far it is not known
  std::optional<uint64_t> full_in_steps;
  std::vector<GrowthShare> growing;  // the stacks that grow most
  // Peak of the run's first step, which creates states and caches; 0: it was before a kept window.
  uint64_t first_high_bytes = 0;
  uint64_t later_high_bytes = 0;  // highest peak of the later steps
};

// All phases of one kind.
struct PhaseReport {
  PhaseKind kind = PhaseKind::kFirstStep;
  uint64_t count = 0;
  int64_t total_ns = 0;
  Peak peak;  // the highest of them
};

struct DeviceReport {
  int64_t device = 0;
  std::string name;
  std::string uuid;
  uint64_t total_bytes = 0;  // 0: not known
  uint64_t events = 0;
  bool has_framework = false;
  // A snapshot without history: the peaks are its state, of which nobody knows whether it ever held
  // more.
  bool state_only = false;
  bool stacks_only_at_end = false;      // blocks freed before it have none
  bool backward_without_stack = false;  // a block without a stack is of another C++ thread
  Peak allocated_peak;
  Peak requested_peak;
  Peak reserved_peak;
  Peak driver_peak;  // of this process's driver memory on the card, as far as it was recorded
  // The most that the driver's peak lacks because it is older than the recording, contexts
  // included; nothing: not known.
  std::optional<uint64_t> before_recording_bytes = 0;
  // What the driver's stream-ordered pools keep beyond their blocks, which is not part of
  // driver_peak: when the process held most or, with the backend cudaMallocAsync, reserved most.
  uint64_t pool_cache_bytes = 0;
  // Of every process; 0 bytes: not known. NVML's highest reading or, since readings miss short
  // peaks, what the driver allocated for this process alone, if that is more.
  Peak device_used_peak;
  uint64_t highest_reading_bytes = 0;
  std::vector<KindShare> kinds;
  int64_t at_ns = 0;    // the instant described by the lists below
  std::string at_note;  // why it is not the requested one; empty: it is
  // Of a device without PyTorch only `allocated`: what the driver had allocated on the card.
  MemoryTotals at_totals;
  Ledger ledger;
  // Of PyTorch's peak: the ledger at the driver's peak, if the card was much fuller then.
  std::optional<Ledger> ledger_at_driver_peak;
  std::vector<CategoryShare> categories;
  std::vector<LabelShare> labels;    // most bytes first
  std::vector<ModuleShare> modules;  // most bytes first
  std::vector<ModuleRow> layers;     // the same as a tree
  TrainedWeights trained;
  std::vector<StackShare> stacks;  // most bytes first
  size_t stacks_left_out = 0;      // more than the options list
  std::vector<SizeShare> sizes;
  std::vector<AgeShare> ages;
  std::vector<TreeNode> tree;
  PushReport pushed_by;
  MemoryLimit limit;
  StepReport steps;
  WholeRun run;       // of a kept window
  Steps step_events;  // their boundaries
  std::vector<PhaseReport> phases;
  std::vector<Phase> phase_events;
  std::optional<PhaseKind> peak_phase;  // that contains the allocated peak
  std::vector<CurvePoint> curve;        // if the options request one
  Fragmentation fragmentation;
  std::string_view fragmentation_at;  // "reserved peak" and so on; empty if state_only
  std::vector<OomReport> ooms;        // the last ones, by time
  size_t oom_count = 0;
  std::vector<LibraryRefusals> library_refusals;
  // PyTorch freed its cache because the driver refused, and went on; nothing: not known, as the
  // driver's calls were not recorded, or a memory fraction may have refused instead.
  std::optional<uint64_t> alloc_retries;
  // PyTorch had memory before the recorded history, and nobody knows how much at most: not of a
  // kept window, whose recorder watched the whole run.
  bool began_late = false;
  uint64_t blocks_before_history = 0;
  uint64_t bytes_before_history = 0;
  uint64_t anomalies = 0;

  // Of the whole run, as far as the recorder knew it.
  const Peak& run_reserved_peak() const {
    return run.reserved_peak.bytes > reserved_peak.bytes ? run.reserved_peak : reserved_peak;
  }
  const Peak& run_driver_peak() const {
    return run.driver_peak.bytes > driver_peak.bytes ? run.driver_peak : driver_peak;
  }
  const Peak& run_device_used_peak() const {
    return run.device_used_peak.bytes > device_used_peak.bytes ? run.device_used_peak
                                                               : device_used_peak;
  }
};

// Kernels that were left out, so that recording costs no more than its budget.
struct KernelBursts {
  std::string budget;           // "2 %", "off"; empty: the recorder did not know one
  uint64_t kernel_cost_ns = 0;  // of CUPTI, for each kernel; 0: not known
  bool measured = false;        // in the process itself; else assumed
  uint64_t pauses = 0;
  uint64_t time_ns = 0;  // of the recording
  uint64_t unrecorded_ns = 0;
  uint64_t cost_ns = 0;  // estimated, of the recording: time in its hooks, and for kernels

  double recorded_share() const { return share(time_ns - unrecorded_ns); }
  double cost_share() const { return share(cost_ns); }

 private:
  double share(uint64_t ns) const {
    return time_ns == 0 ? 0 : static_cast<double>(ns) / static_cast<double>(time_ns);
  }
};

struct LossReport {
  uint64_t events_dropped = 0;
  uint64_t entries_skipped = 0;  // of an import
  uint64_t history_lost_blocks = 0;
  bool stopped = false;       // the recorder could not write any more; what followed is lost
  bool killed = false;        // the process was: others finished its trace
  bool last_kernels = false;  // and CUPTI may not have delivered all of them
  KernelBursts bursts;
  std::vector<std::string> notes;
};

struct RankReport {
  int64_t rank = -1;
  uint64_t world_size = 0;
  std::string host;
  uint64_t pid = 0;
  std::string file;   // as in ProcessModel
  std::string cupti;  // whether the recorder had it alone or shared it; empty: not used
  LossReport loss;
  std::vector<DeviceReport> devices;
  PinnedMemory pinned;
  // False: one of very many ranks, without the lists by stack, nn.Module, name, size and age.
  bool detailed = true;
};

struct Report {
  std::string path;
  std::vector<std::string> notes;  // on its files: left out, missing, truncated, not aligned
  bool incomplete = false;         // files of it are missing
  std::string kind;                // trace, job, torch-snapshot
  uint64_t events = 0;             // memory_events() of the processes
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t events_ns = 0;  // from the first memory event to the last; of a trace, its whole length
  Damage damage;
  uint64_t unknown_blocks = 0;
  std::vector<RankReport> ranks;
  RankComparison comparison;
  std::vector<Finding> findings;
};

// Whether events were lost that could have shown a higher peak, an error or a finding. A history
// that merely began late lost none.
bool has_losses(const Report& report);

// The instant that the report describes in detail: any time of the recording. A device of which no
// out-of-memory error was recorded is described at the time of the job's last one or, if it was not
// recorded then, at its peak, with a note; the report fails only if there is none at all.
struct Instant {
  enum class Kind : uint8_t { kPeak, kOom, kEnd, kTime } kind = Kind::kPeak;
  int64_t time_ns = 0;  // for kTime: since the start of the trace
};

struct ReportOptions {
  Instant at;
  std::optional<int64_t> rank;
  size_t stacks = 20;          // number of the largest to list
  bool absent_stacks = false;  // also those that have nothing at the instant: 0 bytes
  size_t curve_points = 0;
  double tree_share = 0.005;  // of the whole: smaller nodes are folded into their parents
  uint64_t card_bytes = 0;    // judge the run as if on a card of this size; 0: its own
  bool part_of_job = false;   // the trace has all processes of a host, but not those of the others
  bool only_compare = false;  // of the findings, only those from comparing the ranks
};

Result<Report> make_report(const TraceModel& model, const ReportOptions& options);
LossReport loss_of(const ProcessModel& process);
// What every output counts as memory events: the recorded events of PyTorch's allocator, the
// driver's allocations and the requests that the driver refused.
uint64_t memory_events(const ProcessModel& process);
// Without the bridge, or before it was attached, the recorder saw blocks but not requested sizes.
// The peak of known requests is the true peak only if all blocks together were smaller while one of
// unknown size lived.
bool knows_requests(const AllocationHistory& model);
// Whether the recording has this time since its start.
Status check_time(const TraceModel& model, int64_t time_ns);

// The input of a report: the evidence of each device, from passes over all its events
// (analysis/findings/evidence.h). For callers that show a part of it before the report is ready.
struct Groundwork;
// For one rank or, without `rank`, for all. The trace must outlive it.
std::shared_ptr<Groundwork> lay_groundwork(const TraceModel& model, RankComparison comparison,
                                           std::optional<int64_t> rank = {});
// Sets the category of every allocation to the one the report counts it under. False: none is
// known.
bool take_categories(TraceModel& model, const Groundwork& groundwork);
// The options must be for the same rank as the groundwork, which is consumed.
Result<Report> make_report(const TraceModel& model, const ReportOptions& options,
                           Groundwork& groundwork);

// What is older than the history of a device says little about the time before it. Empty: the time
// is not before it.
std::string note_on_time_before(const AllocationHistory& model, int64_t time_ns, int64_t start_ns);

}  // namespace tidemark
