// Decides when kernels are recorded, so that recording costs no more than its share of the time.
//
// An account is credited with the share of the time that passes, and pays for what recording costs
// the host: its hooks, which are never turned off, and CUPTI's part for each kernel. While there is
// credit, kernels are recorded. When it is used up, they are recorded in bursts: a pause lasts
// until the next burst can be paid for. At most one second's credit is saved up, or what one burst
// costs.
//
// Only arithmetic, on times that the caller brings. One thread.
#pragma once

#include <cstdint>

namespace tidemark::injector {

struct BudgetSettings {
  uint32_t share = 20'000;  // millionths; 0: everything is recorded
  // From the first kernel on, everything is recorded until the second step has ended, but at least
  // and at most for that long.
  int64_t shortest_beginning_ns = 0;
  int64_t longest_beginning_ns = 0;
};

// Numbers since the beginning of the recording; step_ns is that of the last step.
struct BudgetReading {
  int64_t now_ns = 0;
  uint64_t hooks_ns = 0;   // the host's threads spent in our hooks
  uint64_t kernels = 0;    // were recorded
  uint64_t switches = 0;   // of kernels, on or off
  uint64_t switch_ns = 0;  // that they took
  int64_t step_ns = 0;     // 0: not known
  uint64_t steps = 0;
  bool requested = false;  // a new peak, or an out-of-memory error
};

struct BudgetDecision {
  bool record = true;
  int64_t again_ns = 0;  // when to ask again, from now on
};

class KernelBudget {
 public:
  explicit KernelBudget(const BudgetSettings& settings) noexcept : settings_(settings) {}

  // What CUPTI's part of recording one kernel costs the host.
  void set_kernel_ns(uint32_t ns) noexcept { kernel_ns_ = ns; }

  BudgetDecision look(const BudgetReading& reading) noexcept;

  // Whether kernels were so dense at the last look that it matters what one costs: it may be several
  // times what was assumed.
  bool depends_on_kernel_cost() const noexcept { return depends_on_cost_; }

 private:
  double share() const noexcept { return settings_.share / 1e6; }
  void account(const BudgetReading& reading) noexcept;
  bool is_beginning(const BudgetReading& reading) noexcept;
  bool must_record(const BudgetReading& reading) noexcept;
  int64_t burst_ns(const BudgetReading& reading) const noexcept;
  void measure_from(const BudgetReading& reading) noexcept;
  double kernel_share(const BudgetReading& reading) const noexcept;
  static int64_t switch_pair_ns(const BudgetReading& reading) noexcept;
  int64_t credit_lasts_ns(const BudgetReading& reading) const noexcept;
  BudgetDecision resume(const BudgetReading& reading) noexcept;
  BudgetDecision pause(const BudgetReading& reading) noexcept;
  BudgetDecision look_recording(const BudgetReading& reading) noexcept;
  BudgetDecision look_paused(const BudgetReading& reading) noexcept;

  BudgetSettings settings_;
  uint32_t kernel_ns_ = 0;
  BudgetReading last_;
  bool begun_ = false;
  bool recording_ = true;
  double credit_ns_ = 0;
  double most_credit_ns_ = 0;
  bool depends_on_cost_ = false;
  double hooks_share_ = 0;  // of the time, lately
  int64_t first_kernel_ns_ = 0;
  int64_t must_until_ns_ = 0;
  int64_t resumed_ns_ = 0;
  // What is known of the density of kernels: from the last burst or, where they are recorded for
  // long, from the last second.
  int64_t measured_from_ns_ = 0;
  int64_t measured_to_ns_ = 0;  // when the pause began
  uint64_t kernels_then_ = 0;   // at measured_from_ns_
};

}  // namespace tidemark::injector
