#include "injector/cupti/kernel_budget.h"

#include <algorithm>

namespace tidemark::injector {

namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kWindowNs = 1000 * kMs;     // over which the share is kept
constexpr int64_t kCalmPeriodNs = 250 * kMs;  // between two looks while nothing has to be done
constexpr int64_t kShortestLookNs = 2 * kMs;
constexpr int64_t kShortestBurstNs = 20 * kMs;  // without steps
constexpr int64_t kLongestBurstNs = 2000 * kMs;
constexpr double kStepsPerBurst = 1.25;  // a burst begins in the middle of a step
// Turning kernels on and off takes at most this part of a burst.
constexpr int64_t kBurstPerSwitch = 100;
constexpr uint64_t kFirstSteps = 2;
constexpr double kSmallPart = 0.2;
// Beyond that, what had to be recorded is not saved again later.
constexpr double kDeepestDebt = 2;  // in windows

}  // namespace

void KernelBudget::account(const BudgetReading& r) noexcept {
  const auto passed = static_cast<double>(r.now_ns - last_.now_ns);
  if (passed <= 0) return;
  const auto hooks = static_cast<double>(r.hooks_ns - last_.hooks_ns);
  const double kernels =
      static_cast<double>(r.kernels - last_.kernels) * static_cast<double>(kernel_ns_);
  const auto switches = static_cast<double>(r.switch_ns - last_.switch_ns);
  credit_ns_ += passed * share() - hooks - kernels - switches;
  const double window = static_cast<double>(kWindowNs) * share();
  credit_ns_ = std::clamp(credit_ns_, -kDeepestDebt * window, std::max(window, most_credit_ns_));
  const double weight = std::min(1.0, passed / static_cast<double>(kWindowNs));
  hooks_share_ += weight * (hooks / passed - hooks_share_);
}

int64_t KernelBudget::burst_ns(const BudgetReading& r) const noexcept {
  const auto step = static_cast<int64_t>(kStepsPerBurst *
                                         static_cast<double>(std::min(r.step_ns, kLongestBurstNs)));
  const int64_t switches = std::min(switch_pair_ns(r), kLongestBurstNs) * kBurstPerSwitch;
  return std::min(std::max({kShortestBurstNs, step, switches}), kLongestBurstNs);
}

int64_t KernelBudget::switch_pair_ns(const BudgetReading& r) noexcept {
  return r.switches == 0 ? 0 : static_cast<int64_t>(2 * r.switch_ns / r.switches);
}

void KernelBudget::measure_from(const BudgetReading& r) noexcept {
  measured_from_ns_ = r.now_ns;
  kernels_then_ = r.kernels;
}

// What kernels cost while they are recorded, as a share of the time. They are counted when CUPTI
// delivers them, so the last burst is known best at the end of the pause after it.
double KernelBudget::kernel_share(const BudgetReading& r) const noexcept {
  const int64_t end = recording_ ? r.now_ns : measured_to_ns_;
  const auto recorded = static_cast<double>(std::max(end - measured_from_ns_, int64_t{1}));
  return static_cast<double>(r.kernels - kernels_then_) * kernel_ns_ / recorded;
}

bool KernelBudget::is_beginning(const BudgetReading& r) noexcept {
  if (r.kernels == 0) return true;  // there is nothing to save yet
  if (first_kernel_ns_ == 0) first_kernel_ns_ = r.now_ns;
  const int64_t passed = r.now_ns - first_kernel_ns_;
  return passed < settings_.shortest_beginning_ns ||
         (r.steps < kFirstSteps && passed < settings_.longest_beginning_ns);
}

bool KernelBudget::must_record(const BudgetReading& r) noexcept {
  if (r.requested) must_until_ns_ = r.now_ns + burst_ns(r);
  return is_beginning(r) || r.now_ns < must_until_ns_;
}

BudgetDecision KernelBudget::resume(const BudgetReading& r) noexcept {
  if (!recording_) {
    recording_ = true;
    resumed_ns_ = r.now_ns;
    measure_from(r);
  }
  return {true, burst_ns(r)};
}

BudgetDecision KernelBudget::pause(const BudgetReading& r) noexcept {
  recording_ = false;
  depends_on_cost_ = true;
  measured_to_ns_ = r.now_ns;
  return {false, kShortestLookNs};
}

// How long the credit lasts at the present density, if that is soon.
int64_t KernelBudget::credit_lasts_ns(const BudgetReading& r) const noexcept {
  const double loss = kernel_share(r) + hooks_share_ - share();
  if (loss * static_cast<double>(kCalmPeriodNs) <= credit_ns_) return kCalmPeriodNs;
  return std::max(static_cast<int64_t>(credit_ns_ / loss), kShortestLookNs);
}

BudgetDecision KernelBudget::look_recording(const BudgetReading& r) noexcept {
  const bool must = must_record(r);
  const int64_t lasted = r.now_ns - resumed_ns_;
  // The first look after more than a second without a pause begins a new measurement, the second
  // one can use it.
  if (credit_ns_ >= 0 && r.now_ns - measured_from_ns_ > kWindowNs) measure_from(r);
  depends_on_cost_ = !must && kernel_share(r) > share() * kSmallPart;
  if (must) {
    const int64_t left = must_until_ns_ - r.now_ns;
    return {true, left > 0 ? std::min(left, kCalmPeriodNs) : kCalmPeriodNs};
  }
  if (credit_ns_ >= 0) return {true, credit_lasts_ns(r)};
  if (const int64_t left = burst_ns(r) - lasted; left > 0) return {true, left};
  return pause(r);
}

BudgetDecision KernelBudget::look_paused(const BudgetReading& r) noexcept {
  depends_on_cost_ = false;
  if (must_record(r)) return resume(r);
  const auto burst = static_cast<double>(burst_ns(r));
  const double left = share() - hooks_share_;
  const double price =
      std::max(0.0, kernel_share(r) - left) * burst + static_cast<double>(switch_pair_ns(r));
  most_credit_ns_ = price;
  // The hooks alone use up the share: only what must be recorded is.
  if (left <= 0) return {false, kWindowNs};
  if (credit_ns_ >= price) return resume(r);
  const double wait = (price - credit_ns_) / left;
  return {false,
          std::clamp(static_cast<int64_t>(std::min(wait, 1e12)), kShortestLookNs, kWindowNs)};
}

BudgetDecision KernelBudget::look(const BudgetReading& reading) noexcept {
  if (settings_.share == 0) return {true, kCalmPeriodNs};
  if (!begun_) {
    begun_ = true;
    resumed_ns_ = reading.now_ns;
    measure_from(reading);
    credit_ns_ = static_cast<double>(kWindowNs) * share();
  } else {
    account(reading);
  }
  last_ = reading;
  return recording_ ? look_recording(reading) : look_paused(reading);
}

}  // namespace tidemark::injector
