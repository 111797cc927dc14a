// The memory that the recorded program would need after changes: its recorded requests with other
// sizes and lives (planned_run.h), replayed through the model of PyTorch's allocator
// (analysis/whatif/), so that fragmentation is in the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/insight/card/limit.h"
#include "analysis/plan/change.h"
#include "analysis/plan/planned_run.h"
#include "analysis/plan/planned_sizes.h"
#include "analysis/whatif/whatif.h"

namespace tidemark {

struct CategoryBytes {
  Category category = Category::kUnknown;
  uint64_t recorded = 0;  // at the recorded peak of allocated memory
  uint64_t planned = 0;   // at the planned one
};

// What a layer, or an nn.Module outside of all layers, holds at those peaks.
struct LayerBytes {
  std::string path;               // empty: of none
  uint64_t recorded_weights = 0;  // parameters, gradients, optimizer states
  uint64_t recorded_others = 0;
  uint64_t planned_weights = 0;
  uint64_t planned_others = 0;
};

// The highest totals between two events of the recording.
struct PlanPoint {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint64_t allocated = 0;
  uint64_t reserved = 0;
};

struct PlanOutcome {
  Prediction likely;  // without a limit
  uint64_t low_reserved = 0;
  uint64_t high_reserved = 0;
  uint64_t low_allocated = 0;
  uint64_t high_allocated = 0;
  // Within the memory of the card, where that is known.
  std::optional<Prediction> on_card;
  // It fits as planned, but at the upper end of the range a request would not.
  bool may_not_fit = false;
  std::vector<CategoryBytes> categories;  // most planned bytes first
  // Of a request that failed in the recording and succeeds in the plan, at the planned peak; it is
  // in no category.
  uint64_t failed_request = 0;
  std::vector<LayerBytes> layers;  // in the order of their paths; empty: none are known
  std::vector<PlanPoint> curve;
  std::vector<std::string> assumptions;

  bool fits() const { return !on_card || !on_card->out_of_memory; }
};

struct PlanOptions {
  WhatIfOptions whatif;  // card_bytes: of the card planned for
  uint32_t curve_points = 500;
};

class Planner {
 public:
  // Errors: those of WhatIf::prepare(), and a recording without categories.
  static Result<std::unique_ptr<Planner>> prepare(const ProcessModel& process, int64_t device,
                                                  const PlanOptions& options);

  // Learns how sizes grow from another recording of the same program. Errors: nothing matches, or
  // the two do not differ.
  Status learn(const ProcessModel& other, Dimension dimension);

  // An error where no forward pass was recorded: what grows with a batch or a length is not known.
  Status knows_growth() const;

  Result<PlanOutcome> plan(const PlanChange& change) const;
  // Only whether it fits the card, a larger batch without emptying the cache more than a few times;
  // errors as of plan().
  Result<bool> fits(const PlanChange& change) const;

  std::vector<PlanPoint> recorded_curve() const;
  // Of the recorded requests, replayed without a change.
  uint64_t replayed_reserved_peak() const;
  const WhatIf& whatif() const { return whatif_; }
  const RecordedProgram& program() const { return program_; }
  // What the card holds outside of PyTorch's allocator: as recorded, or assumed where the recording
  // has no readings of the card.
  uint64_t outside_bytes() const { return outside_bytes_; }
  bool assumes_outside() const { return assumes_outside_; }
  // Memory that the allocator may reserve; 0: not known.
  uint64_t capacity() const { return capacity_; }
  // The same with the allocator settings of the change, which may set a limit.
  uint64_t capacity_for(const PlanChange& change) const;
  // What decides it: the card, a request that the driver refused, or a memory fraction.
  LimitSource limit_source_for(const PlanChange& change) const;
  bool ran_out() const { return !program_.model().failures.empty(); }
  // Whether the recording has no whole step after the last out-of-memory error of the process:
  // plans are lower bounds.
  bool ends_at_error() const;
  // False if it ended with that error before the end of the first step.
  bool has_whole_step() const;
  // The device that had this error, where it is another one of the process: what ends there ends
  // everywhere.
  std::optional<int64_t> other_device_that_failed() const;
  // Whether steps may divide their batch: a plan for another batch is then one for what a pass
  // gets.
  bool may_divide_batch() const {
    const bool learnt = learnt_.ratio != 1 && learnt_dimension_ == Dimension::kBatch;
    return !learnt && program_.batch_parts().decide_peak();
  }
  // The ratio of the batch sizes or lengths that was learnt; 1: nothing was.
  const LearntLaws& learnt() const { return learnt_; }

 private:
  Planner(const ProcessModel& process, const AllocationHistory& model, WhatIf whatif,
          const PlanOptions& options);

  // The last out-of-memory error of the process, and the steps of the device that had it.
  struct LastFailure {
    const AllocationHistory* model = nullptr;  // null: there was none
    Steps steps_there;

    const FailedAllocation& failure() const { return model->failures.back(); }
  };
  static LastFailure last_failure(const RecordedProgram& program);

  Status check_precision(PlanPrecision precision) const;
  Result<PlannedRun> run_of(const PlanChange& change, Estimate estimate) const;
  Result<PlannedRun> recorded_run() const;
  AllocatorSettings settings_of(const PlanChange& change) const;
  void widen_by_replay(uint64_t replayed, PlanOutcome& out) const;
  void place_on_card(const PlanChange& change, const PlannedRun& likely, const PlannedRun& high,
                     uint64_t not_replayed, PlanOutcome& out) const;
  void add_composition(const PlannedRun& run, PlanOutcome& out) const;
  void state_precision(PlanPrecision precision, std::vector<std::string>& out) const;
  bool has(Category category) const;
  void state_batch(std::vector<std::string>& out) const;
  void state_assumptions(const PlanChange& change, uint64_t replayed,
                         std::vector<std::string>& out) const;

  RecordedProgram program_;
  WhatIf whatif_;
  PlanOptions options_;
  Layers layers_;
  SizeLaws laws_;
  LastFailure failure_;
  LearntLaws learnt_;
  Dimension learnt_dimension_ = Dimension::kBatch;
  std::vector<uint32_t> later_states_;  // that a step after the recorded one has
  StepVariety variety_ = StepVariety::kNone;
  uint64_t outside_bytes_ = 0;
  bool assumes_outside_ = false;
  bool keeps_limit_ = false;  // of the recording, though a card is given
  bool refused_ = false;      // the driver's refusal decides room_
  uint64_t capacity_ = 0;
  uint64_t room_ = 0;            // without a limit that the program set
  bool may_have_limit_ = false;  // that the program set and that the recording does not know
};

// The largest batch that fits: a factor of the recorded one. `samples`: the recorded batch size, to
// find a whole number; 0: not known. 0 if not even the smallest fits.
struct FittingBatch {
  double factor = 0;
  uint64_t samples = 0;
  bool at_limit = false;  // larger ones were not tried
};
Result<FittingBatch> largest_batch(const Planner& planner, const PlanChange& change,
                                   uint64_t samples);

// The cheapest set of changes, on top of `change`, with which the program fits; none: nothing
// helps. Smaller batches have whole samples where `samples` are known.
std::optional<PlanChange> cheapest_fit(const Planner& planner, const PlanChange& change,
                                       uint64_t samples);

}  // namespace tidemark
