// The owners of the card's memory at one instant, to the byte where it was recorded.
//
// What was recorded (the framework's memory, driver allocations by owner, pools, graphs) is known
// at any instant. Only the rest comes from NVML, which is read a few times a second: it is what the
// nearest usable reading found beyond everything that was recorded at the time of that reading. A
// reading is not usable if the driver was at work around it, unless the recorder made sure that no
// call overlapped with it: it may have an allocation that is not yet recorded, or lack one that is.
//
// The rest is split into other processes, the part present since the first context ("context"), the
// code loaded since ("code", by the size of its files), and what remains ("unexplained"), which is
// always shown. NVML lists the processes less often than it reads the card. On a card with several,
// the latest list tells what this process has beyond the recorded; what the card has beyond that
// and beyond its own part (firmware) is the other processes', at the very time of the reading.
//
// Memory that PyTorch counts but that has been unmapped behind its back (analysis/insight/
// residence.h) is not on the card: PyTorch's lines are without it, and it is given beside them as
// "torch.not_resident".
//
// "torch.pending" is what the program freed while another stream may still use it; "torch.cached"
// is the rest of PyTorch's segments.
//
// A recording that began late did not see earlier allocations: the part of the first reading that
// is not accounted for, contexts included, is "pre_attach". It can only shrink: when a later
// reading has less unaccounted memory, the difference was freed.
//
// While the process has destroyed its contexts on the device, it has no context and no pools there:
// readings of that time say nothing about the time before, and the other way round.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/history/driver_history.h"
#include "analysis/insight/card/residence.h"
#include "proto/rows.h"

namespace tidemark {

struct ProcessModel;

inline constexpr const char* kNotResident = "torch.not_resident";

struct LedgerLine {
  std::string owner;
  int64_t bytes = 0;
};

// What NVML said about the whole card.
struct CardReading {
  int64_t time_ns = 0;
  uint64_t used_bytes = 0;
};

struct Ledger {
  int64_t time_ns = 0;
  std::vector<LedgerLine> lines;
  uint64_t device_used_bytes = 0;      // the sum of the lines; 0: they hold only what was recorded
  uint64_t not_resident_bytes = 0;     // of PyTorch's segments; not part of the lines
  std::optional<CardReading> reading;  // the source of what was not recorded
  bool shared_card = false;            // other processes use it, but how many bytes is not known
};

// Computes ledgers of one device, each with a few binary searches. The process must outlive it.
class LedgerSource {
 public:
  LedgerSource(const ProcessModel& process, int64_t device);

  // Many events share one time; `exact` holds the framework's totals at the exact event.
  Ledger at(int64_t time_ns, const MemoryTotals* exact = nullptr) const;

  // What this process has of the card outside PyTorch's allocator: its context, libraries and
  // driver allocations. Nothing: there are no readings to tell.
  std::optional<uint64_t> own_outside_torch(int64_t time_ns) const;
  // The same at the instant of its highest value.
  std::optional<uint64_t> most_own_outside_torch() const;
  // What of it was recorded, at the instant of the highest value.
  uint64_t most_recorded_outside_torch() const;
  // Whether other processes use the card, or may.
  bool has_other_processes() const;

  // The most that can be older than the recording, contexts included; nothing: not known.
  std::optional<uint64_t> before_recording() const;

  const DriverHistory& driver() const { return driver_; }
  const Residence& residence() const { return residence_; }
  // NVML's use of the whole card, by all processes.
  const StepSeries& used() const { return used_; }

 private:
  // The smallest unaccounted use over all readings after the first allocation. That part exists
  // from the start and never shrinks: context, firmware, code loaded at the start.
  struct ConstantPart {
    int64_t bytes = 0;
    int64_t time_ns = 0;
  };

  // What NVML said about the processes of the card at one instant.
  struct ProcessList {
    int64_t time_ns = 0;
    uint64_t own_bytes = 0;
    uint64_t other_bytes = 0;
  };

  std::vector<LedgerLine> recorded_lines(int64_t time_ns, const MemoryTotals* exact) const;
  // All of them, as the card had it at the time of a reading.
  int64_t recorded_bytes(int64_t time_ns) const;
  uint64_t recorded_outside_torch(int64_t time_ns) const;
  std::optional<int64_t> driver_peak_outside_torch() const;
  uint64_t torch_driver_bytes(const DriverState& state) const;
  uint64_t inside_of_others(int64_t time_ns) const;
  // What the reading found beyond other processes and what was recorded then.
  int64_t rest_of(size_t reading) const;
  bool has_context_at(int64_t time_ns) const;  // from the first allocation on
  bool contexts_gone_at(int64_t time_ns) const;
  bool may_be_shared() const;
  int64_t uncertain_ns() const;
  bool driver_rests_at(int64_t reading_ns) const;
  std::optional<size_t> usable_reading(int64_t time_ns) const;
  std::optional<uint64_t> others_at(size_t reading) const;
  std::optional<int64_t> own_rest_near(int64_t time_ns) const;
  std::vector<ProcessList>::const_iterator first_list_from(int64_t time_ns) const;
  void find_card_part();
  void find_constant_part();
  ConstantPart constant_at(int64_t time_ns) const;
  std::vector<Counter> counters_of(CounterKind kind) const;
  StepSeries sum_of_latest(CounterKind kind) const;
  std::vector<ProcessList> process_lists() const;

  const ProcessModel& process_;
  int64_t device_;
  bool late_;  // the recording began after the device was in use
  DriverHistory driver_;
  Residence residence_;
  StepSeries used_;
  std::vector<int64_t> at_rest_;  // times of readings that no driver call overlapped with
  StepSeries pool_reserved_;
  StepSeries graph_reserved_;
  StepSeries own_;
  std::vector<ProcessList> lists_;  // those that name this process
  int64_t card_part_ = 0;           // of no process
  ConstantPart constant_;
  StepSeries before_;  // constant part of a late recording over time: it shrinks
};

// One ledger.
Ledger ledger_at(const ProcessModel& process, int64_t device, int64_t time_ns,
                 const MemoryTotals* exact = nullptr);

// The greatest use of the card that NVML reported.
Peak device_used_peak(const ProcessModel& process, int64_t device);

}  // namespace tidemark
