// Who holds the card's memory at one instant. The lines add up to what NVML says is used.
//
// The card's own number comes ten times a second, so the ledger is drawn at the sample nearest to
// the instant asked for. What no recorded allocation accounts for is split into the part that was
// there from the first context on ("context"), the code loaded since ("code", by the size of its
// files), and the rest ("unexplained"), which is always shown.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/driver_model.h"

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

// Many events share one time; `exact` are the framework's totals at the very instant, used when the
// ledger is drawn there and not at a sample.
Ledger ledger_at(const ProcessModel& process, int64_t device, int64_t time_ns,
                 const MemoryTotals* exact = nullptr);

// The greatest use of the card that NVML saw.
Peak device_used_peak(const ProcessModel& process, int64_t device);

}  // namespace tidemark
