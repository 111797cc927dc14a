// The owners of the card's memory at one instant. The lines add up to what NVML reports as used.
//
// NVML is sampled ten times a second, so the ledger is computed at the nearest sample that is large
// enough for everything recorded: no line is negative. Memory that no recorded allocation accounts
// for is split into the part present since the first context ("context"), the code loaded since
// ("code", by the size of its files), and the rest ("unexplained"), which is always shown.
//
// A recording that began late did not see earlier allocations: the part of the first sample that is
// not accounted for, contexts included, is "pre_attach". It can only shrink: when a later sample
// has less unaccounted memory, the difference was freed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/history/driver_history.h"
#include "proto/rows.h"

namespace tidemark {

struct ProcessModel;

struct LedgerLine {
  std::string owner;
  int64_t bytes = 0;
};

struct Ledger {
  int64_t time_ns = 0;
  std::vector<LedgerLine> lines;
  uint64_t device_used_bytes = 0;  // NVML; 0: not known, the lines hold only what was recorded
  bool shared_card = false;        // other processes use it, but how many bytes is not known
};

// Computes ledgers of one device, each with a few binary searches. The process must outlive it.
class LedgerSource {
 public:
  LedgerSource(const ProcessModel& process, int64_t device);

  Ledger at(int64_t time_ns, const MemoryTotals* exact = nullptr) const;

  const DriverHistory& driver() const { return driver_; }
  // NVML's use of the whole card, by all processes.
  const StepSeries& used() const { return used_; }

 private:
  struct Known;
  // The smallest unaccounted use over all samples after the first allocation. That part exists from
  // the start and never shrinks: context, firmware, code loaded at the start.
  struct ConstantPart {
    int64_t bytes = 0;
    int64_t time_ns = 0;
  };

  Known known_at(int64_t time_ns) const;
  // At that sample, or without any.
  Ledger draw(int64_t time_ns, std::optional<size_t> sample, const MemoryTotals* exact) const;
  // The framework's memory according to the driver layer.
  uint64_t torch_driver_at(int64_t time_ns) const;
  uint64_t reserved_at(int64_t time_ns, const MemoryTotals& totals) const;
  bool others_at(int64_t time_ns, uint64_t used, uint64_t& bytes) const;
  void find_constant_part();
  ConstantPart constant_at(int64_t time_ns) const;
  std::vector<Counter> counters_of(CounterKind kind) const;
  StepSeries sum_of_latest(CounterKind kind) const;
  StepSeries sum_of_others() const;

  const ProcessModel& process_;
  int64_t device_;
  bool late_;  // the recording began after the device was in use
  DriverHistory driver_;
  StepSeries used_;
  StepSeries pool_reserved_;
  StepSeries graph_reserved_;
  StepSeries own_;
  StepSeries others_;  // of other processes, at samples that also list this process
  ConstantPart constant_;
  StepSeries before_;  // constant part of a late recording over time: it shrinks
};

// One ledger. Many events share one time; `exact` holds the framework's totals at the exact event,
// used when the ledger is computed there and not at a sample.
Ledger ledger_at(const ProcessModel& process, int64_t device, int64_t time_ns,
                 const MemoryTotals* exact = nullptr);

// The greatest use of the card that NVML reported.
Peak device_used_peak(const ProcessModel& process, int64_t device);

}  // namespace tidemark
