// The input of the diagnosis rules, computed once for each device of each process.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "analysis/findings/finding.h"
#include "analysis/history/memory_state.h"
#include "analysis/insight/card/ledger.h"
#include "analysis/insight/card/limit.h"
#include "analysis/insight/categories/categories.h"
#include "analysis/insight/phases.h"
#include "analysis/insight/whole_run.h"
#include "analysis/passes/backward_passes.h"
#include "analysis/passes/gradient_use.h"
#include "analysis/passes/side_graphs.h"
#include "analysis/ranks/ranks.h"
#include "analysis/steps/steps.h"

namespace tidemark {

struct BestReplay;  // analysis/findings/advice.cpp

struct DeviceEvidence {
  const ProcessModel* process = nullptr;
  int64_t device = 0;
  uint64_t total_bytes = 0;  // 0: not known
  Ledger ledger;             // at the instant that the report describes
  Peak driver_peak;
  WholeRun run;              // of a kept window
  bool shares_card = false;  // with another process of the trace

  // Only where the framework's history was recorded; null and empty otherwise.
  const AllocationHistory* model = nullptr;
  const StackRoles* roles = nullptr;
  Steps steps;
  std::vector<Phase> phases;
  Categories categories;
  std::vector<BackwardPass> backward_passes;
  GradientUse gradient_use;
  std::vector<SideGraph> side_graphs;
  MemoryLimit limit;
  // Filled by the first of the rules that needs it; they run at the same time.
  struct Shared {
    std::once_flag once;
    std::shared_ptr<const BestReplay> best_replay;
  };
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();

  // Not with the backend cudaMallocAsync, whose segments are the driver's business.
  bool has_caching_allocator() const { return model != nullptr && process->torch_pools.empty(); }
  bool ran_out() const { return model != nullptr && !model->failures.empty(); }
  // Whether memory ran out, or nearly did.
  bool is_tight() const;
  // Whether so much is left that no hint about the peak is of use.
  bool has_room() const;
  // Like is_tight for the card, whoever uses it.
  bool is_card_full() const;
  uint64_t peak_bytes() const { return model == nullptr ? 0 : model->allocated_peak.bytes; }
  // Bytes of a category at the allocated peak.
  uint64_t at_peak(Category category) const;
  // The totals when the last request failed; all zeros when none did.
  MemoryTotals at_failure() const;
  // Whether the recording has no whole step after the last request that failed, or hardly anything
  // where the steps are not known: what the program would have needed next is not known.
  bool ends_at_failure() const;
  // The validation or generation in which the last request failed; nullptr: in none.
  const Phase* failing_phase() const;
  // The same of the allocated peak, where no request failed.
  const Phase* decisive_phase() const;
  bool fails_in_validation() const { return failing_phase() != nullptr; }
  // Whether memory ran out because passes without a backward pass keep their graphs: that
  // validation, or others that held a fifth of the memory and more than was requested. What would
  // lower the peak of a training step is no help.
  bool fails_for_kept_graph() const;
  // "out of memory", with the part of the program that the last request was made in, where it is
  // known: "out of memory in validation".
  std::string out_of_memory_text() const;

  Finding finding(const char* id, const char* severity, std::string summary) const;
};

// What identifies a card: its host and UUID. Without a UUID, the ordinal of the process, which
// differs between processes that see different cards.
std::string card_of(const ProcessModel& process, int64_t ordinal);

// Evidence before it is used: see analysis/report/report.h.
struct Groundwork {
  RankComparison comparison;
  std::vector<std::unique_ptr<const StackRoles>> roles;  // of the processes below
  std::vector<DeviceEvidence> devices;                   // in the order of the trace
};

struct Evidence {
  const TraceModel* trace = nullptr;
  const RankComparison* ranks = nullptr;
  std::vector<DeviceEvidence> devices;
  bool part_of_job = false;  // other ranks are not in the trace
  // The run is judged as if alone on a card of this size; 0: on its own card.
  uint64_t other_card_bytes = 0;
};

// Adds its findings. Each rule is a small file in rules/, named after the id of its findings.
using Rule = void (*)(const Evidence& evidence, std::vector<Finding>& out);

}  // namespace tidemark
