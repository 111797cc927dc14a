// The answer of `tidemark plan` for every rank and device of a recording.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/plan/plan.h"

namespace tidemark {

struct PlanQuestion {
  PlanChange change;
  std::optional<int64_t> rank;
  std::optional<int64_t> device;
  PlanOptions options;
  bool fit = false;
  uint64_t samples = 0;  // the recorded batch size, for `fit`; 0: not known
};

// Of the device of a process on which the smallest batch fits: its devices share the batch.
struct SharedBatch {
  int64_t device = 0;
  FittingBatch batch;
};

struct PlanFit {
  FittingBatch batch;
  std::optional<SharedBatch> shared;   // if a smaller one fits on another device of the process
  PlanOutcome outcome;                 // with that batch, if there is one
  std::optional<PlanChange> cheapest;  // changes with which the program fits, if it does not
  std::optional<PlanOutcome> cheapest_outcome;
};

struct PlanDevice {
  int64_t rank = -1;
  uint64_t pid = 0;
  std::string file;  // as in ProcessModel
  int64_t device = 0;
  std::string card_name;
  std::string own_conf;
  uint64_t recorded_reserved_peak = 0;
  uint64_t recorded_allocated_peak = 0;
  // The recorded requests replayed without a change; it differs where the recording began late or
  // the model does not reproduce it.
  uint64_t replayed_reserved_peak = 0;
  uint64_t card_bytes = 0;
  uint64_t other_bytes = 0;    // on the card, outside of PyTorch's allocator
  bool assumes_other = false;  // the recording has no readings of the card
  bool is_other_card = false;  // its size was given: other_bytes are those of this process alone
  bool leaves_others = false;  // and other processes of the recording are not counted
  uint64_t capacity = 0;       // of the card, for PyTorch; 0: not known
  LimitSource capacity_source = LimitSource::kUnknown;  // what decides it
  bool ran_out = false;
  // Another device of the process had its last out-of-memory error.
  std::optional<int64_t> other_device_failed;
  bool ends_at_error = false;     // plans are lower bounds, and batches that fit upper ones
  bool has_whole_step = true;     // if not, no batch can be said to fit
  bool may_divide_batch = false;  // factors of the batch are then those of what one pass gets
  // The id of a finding that memory grows for as long as the program runs; empty: there is none, or
  // nobody looked. No batch can be said to fit then.
  std::string growth;
  double learnt_ratio = 1;
  PlanOutcome outcome;
  std::optional<PlanFit> fit;
  std::vector<PlanPoint> recorded_curve;
};

struct PlanReport {
  std::string path;
  std::string other_path;  // of the second recording; empty: there is none
  int64_t start_ns = 0;
  PlanChange change;
  uint64_t samples = 0;
  std::vector<PlanDevice> devices;
};

// `other`: a second recording of the program, with another batch size, or with another length of
// sequences if only that changes; may be null. Errors: nothing can be planned.
Result<PlanReport> make_plan_report(const TraceModel& model, const TraceModel* other,
                                    const PlanQuestion& question);

}  // namespace tidemark
