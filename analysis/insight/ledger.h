// Who holds the card's memory at one instant. The lines add up to what NVML says is used.
//
// The card's own number comes ten times a second, so the ledger is drawn at the sample nearest to
// the instant asked for that has room for all that was recorded: no line is negative. What no
// recorded allocation accounts for is split into the part that was there from the first context on
// ("context"), the code loaded since ("code", by the size of its files), and the rest
// ("unexplained"), which is always shown.
//
// A recording that began late saw nobody take what was there before: what the first sample has
// beyond the known, contexts included, is "pre_attach". It can only become less: when a later
// sample has less beyond the known, so much of it was freed.
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
  uint64_t device_used_bytes = 0;  // NVML; 0: not known, the lines are what was recorded
  bool shared_card = false;  // other processes use it, and which bytes are theirs is not known
};

// Ledgers of one device, each in a few binary searches. The process must outlive it.
class LedgerSource {
 public:
  LedgerSource(const ProcessModel& process, int64_t device);

  Ledger at(int64_t time_ns, const MemoryTotals* exact = nullptr) const;

  const DriverHistory& driver() const { return driver_; }
  // What NVML said was used of the whole card, by all processes.
  const StepSeries& used() const { return used_; }

 private:
  struct Known;
  // What is used beyond the known, where it is least over all samples after the first allocation.
  // That part is there from the start and never goes: context, firmware's share, code loaded at
  // once.
  struct ConstantPart {
    int64_t bytes = 0;
    int64_t time_ns = 0;
  };

  Known known_at(int64_t time_ns) const;
  // At that sample, or without one.
  Ledger draw(int64_t time_ns, std::optional<size_t> sample, const MemoryTotals* exact) const;
  // What the driver says of the framework's memory.
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
  bool late_;  // began after the device was in use
  DriverHistory driver_;
  StepSeries used_;
  StepSeries pool_reserved_;
  StepSeries graph_reserved_;
  StepSeries own_;
  StepSeries others_;  // of other processes, at the samples that this process has one in
  ConstantPart constant_;
  StepSeries before_;  // a late one's constant part up to a time: it becomes less
};

// One ledger. Many events share one time; `exact` are the framework's totals at the very instant,
// used when the ledger is drawn there and not at a sample.
Ledger ledger_at(const ProcessModel& process, int64_t device, int64_t time_ns,
                 const MemoryTotals* exact = nullptr);

// The greatest use of the card that NVML saw.
Peak device_used_peak(const ProcessModel& process, int64_t device);

}  // namespace tidemark
