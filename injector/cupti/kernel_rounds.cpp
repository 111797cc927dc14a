#include "injector/cupti/kernel_rounds.h"

#include <algorithm>
#include <charconv>

#include "injector/cupti/callbacks.h"
#include "injector/cupti/kernel_budget.h"
#include "injector/cupti/kernels.h"
#include "injector/cupti/launch_cost.h"
#include "injector/marks/step_levels.h"
#include "injector/process/hook_time.h"
#include "injector/process/now.h"
#include "injector/process/own_scope.h"
#include "injector/process/tool_thread.h"
#include "injector/recorder/process_rows.h"
#include "injector/sampling/kernel_request.h"

namespace tidemark::injector {

namespace {

constexpr int64_t kMs = 1'000'000;
constexpr uint32_t kPeriodMs = 250;
// The beginning of a program has its first steps; one that runs already is in the middle of them.
constexpr BudgetSettings kFromTheStart{0, 2000 * kMs, 10'000 * kMs};
constexpr BudgetSettings kLate{0, 500 * kMs, 500 * kMs};

// Until it is measured: what 1,410 kernels added to a step on an H200 with CUPTI 13.0.1, in
// separate processes, 3.0 ms. Within one process it was 1.8 ms.
constexpr uint32_t kAssumedKernelNs = 2100;
// A kernel costs something. A measurement that finds less has missed it: CUPTI may take its time
// outside of the launch, or in few of them. Then the assumed cost stays.
constexpr uint64_t kLeastKernelNs = 100;
constexpr uint64_t kMostKernelNs = 1'000'000;
constexpr int64_t kTurnPatienceNs = 1000 * kMs;
constexpr int64_t kPauseBetweenTriesNs = 10'000 * kMs;
constexpr uint32_t kMostTries = 5;
constexpr double kBlockedLaunchNs = 30'000;  // a launch takes a few microseconds

// cuptiActivityDisable of CUDA 13.0 can hang on kernels; fixed in its Update 1.
constexpr uint32_t kHangsOnDisable = 130000;

// Of this process, also for its later recordings; 0: not measured yet.
uint32_t g_measured_kernel_ns = 0;

struct Rounds {
  KernelBudget budget{{}};
  bool limited = false;  // there is a budget, and it can be kept
  Recorder::Task task = nullptr;
  TickRate ticks;

  bool paused = false;
  uint64_t stretches = 0;
  int64_t marked_ns = 0;  // when the last stretch began
  uint64_t switches = 0;
  uint64_t switch_ns = 0;

  bool timing = false;
  uint32_t turn = 0;
  uint32_t tries = 0;
  int64_t turn_began_ns = 0;
  int64_t next_try_ns = 0;
};
Rounds g_rounds;

void mark_stretch(MarkPhase phase, int64_t time_ns) {
  Rounds& rounds = g_rounds;
  if (phase == MarkPhase::kBegin) {
    ++rounds.stretches;
    rounds.marked_ns = time_ns;
  }
  Mark mark{};
  mark.time_ns = time_ns;
  mark.correlation = rounds.stretches;
  mark.device = -1;
  mark.name = recorder().intern_string("kernels not recorded");
  mark.domain = recorder().intern_string("tidemark");
  mark.thread = current_thread();
  mark.phase = phase;
  mark.kind = MarkKind::kNotRecorded;
  recorder().record(mark);
}

// A recording that keeps only its last stretch forgets marks that are older. So a long pause is
// marked again from time to time.
void mark_long_pause() {
  constexpr int64_t kLongestStretchNs = 1000 * kMs;
  const int64_t time_ns = now_ns();
  if (!g_rounds.paused || time_ns - g_rounds.marked_ns < kLongestStretchNs) return;
  mark_stretch(MarkPhase::kEnd, time_ns);
  mark_stretch(MarkPhase::kBegin, time_ns);
}

void give_up(std::string_view reason) {
  g_rounds.limited = false;
  recorder().report(HealthKind::kSourceDisabled, 0, reason);
}

// False if CUPTI refused.
bool switch_to(bool on) {
  Rounds& rounds = g_rounds;
  if (on != rounds.paused) return true;
  if (!on) mark_stretch(MarkPhase::kBegin, now_ns());
  const int64_t begin_ns = monotonic_ns();
  const bool done = switch_kernels(on);
  rounds.switch_ns += static_cast<uint64_t>(monotonic_ns() - begin_ns);
  ++rounds.switches;
  if (done) rounds.paused = !on;
  note_kernels_recorded(!rounds.paused);
  // Where CUPTI refused to pause, nothing was left out.
  if (!rounds.paused) mark_stretch(MarkPhase::kEnd, done ? now_ns() : rounds.marked_ns);
  if (done) return true;
  give_up(on ? "kernels: CUPTI refused to record them again after a pause"
             : "overhead: CUPTI refused to pause kernels, so the budget is not kept");
  return false;
}

void set_kernel_ns(uint32_t ns, std::string_view how) {
  g_rounds.budget.set_kernel_ns(ns);
  char text[16];
  const auto end = std::to_chars(text, text + sizeof text, ns).ptr;
  record_tool_setting("kernel_cost_ns", {text, static_cast<size_t>(end - text)});
  record_tool_setting("kernel_cost", how);
}

// ---- what a kernel costs --------------------------------------------------------------------

bool should_measure(int64_t at_ns) {
  const Rounds& rounds = g_rounds;
  return g_measured_kernel_ns == 0 && rounds.tries < kMostTries && at_ns >= rounds.next_try_ns;
}

void end_timing(int64_t at_ns) {
  end_launch_timing(cupti_subscription());
  g_rounds.timing = false;
  g_rounds.next_try_ns = at_ns + kPauseBetweenTriesNs;
}

void take_result(int64_t at_ns) {
  const double ns_per_tick = g_rounds.ticks.ns_per_tick(at_ns);
  const auto ticks = launch_cost_ticks(static_cast<uint64_t>(kBlockedLaunchNs / ns_per_tick));
  if (!ticks) return;
  const auto ns = static_cast<uint64_t>(static_cast<double>(*ticks) * ns_per_tick);
  if (ns < kLeastKernelNs) return;
  g_measured_kernel_ns = static_cast<uint32_t>(std::min(ns, kMostKernelNs));
  set_kernel_ns(g_measured_kernel_ns, "measured");
}

// Kernels are on in even turns.
void enter_turn(uint32_t turn, int64_t at_ns) {
  begin_turn(kTurns);
  if (!switch_to(turn % 2 == 0)) return end_timing(at_ns);
  g_rounds.turn = turn;
  g_rounds.turn_began_ns = at_ns;
  begin_turn(turn);
}

void begin_timing(int64_t at_ns) {
  Rounds& rounds = g_rounds;
  ++rounds.tries;
  rounds.next_try_ns = at_ns + kPauseBetweenTriesNs;
  if (!begin_launch_timing(cupti_subscription(), rounds.task)) {
    rounds.tries = kMostTries;
    return;
  }
  rounds.timing = true;
  enter_turn(0, at_ns);
}

// Returns the milliseconds until the next round, which comes earlier if there are enough launches.
uint32_t continue_timing(int64_t at_ns) {
  constexpr uint32_t kLookMs = 100;
  Rounds& rounds = g_rounds;
  if (!turn_is_full(rounds.turn)) {
    if (at_ns - rounds.turn_began_ns > kTurnPatienceNs) end_timing(at_ns);
    return kLookMs;
  }
  if (rounds.turn + 1 < kTurns) {
    enter_turn(rounds.turn + 1, at_ns);
  } else {
    end_timing(at_ns);
    take_result(at_ns);
  }
  return rounds.timing ? kLookMs : 1;
}

BudgetReading read_now(int64_t at_ns) {
  BudgetReading reading;
  RecordingCost cost;
  if (recorder().cost(cost)) reading.hooks_ns = cost.callbacks_ns;
  reading.now_ns = at_ns;
  reading.kernels = kernels_so_far();
  reading.switches = g_rounds.switches;
  reading.switch_ns = g_rounds.switch_ns;
  reading.step_ns = step_levels().last_step_ns();
  reading.steps = step_levels().steps();
  reading.requested = take_kernel_request();
  return reading;
}

}  // namespace

void start_kernel_rounds(const Options& options, bool late, Recorder::Task task) noexcept {
  g_rounds = Rounds();
  BudgetSettings settings = late ? kLate : kFromTheStart;
  settings.share = options.overhead;
  g_rounds.budget = KernelBudget(settings);
  g_rounds.limited = options.cupti && options.kernels && options.overhead != 0;
  g_rounds.task = task;
  g_rounds.ticks.begin(monotonic_ns());
  answer_kernel_requests(g_rounds.limited ? task : nullptr);
  if (!g_rounds.limited) return;
  const bool known = g_measured_kernel_ns != 0;
  set_kernel_ns(known ? g_measured_kernel_ns : kAssumedKernelNs, known ? "measured" : "assumed");
}

uint32_t run_kernel_round() noexcept {
  collect_kernels();
  if (!g_rounds.limited || !kernels_can_be_switched()) return kPeriodMs;
  const int64_t at_ns = monotonic_ns();
  if (g_rounds.timing) return continue_timing(at_ns);
  const BudgetDecision decision = g_rounds.budget.look(read_now(at_ns));
  if ((!decision.record || g_rounds.budget.depends_on_kernel_cost()) &&
      cupti_subscription().functions().version == kHangsOnDisable) {
    give_up(
        "overhead: the budget is not kept: CUPTI of CUDA 13.0 may hang when kernels are paused "
        "(fixed in 13.0 Update 1)");
    return kPeriodMs;
  }
  if (g_rounds.budget.depends_on_kernel_cost() && should_measure(at_ns)) {
    begin_timing(at_ns);
    if (g_rounds.timing) return 1;
  }
  switch_to(decision.record);
  mark_long_pause();
  return static_cast<uint32_t>(std::clamp<int64_t>(decision.again_ns / kMs, 1, kPeriodMs));
}

void end_kernel_rounds() noexcept {
  answer_kernel_requests(nullptr);
  if (g_rounds.timing) end_timing(monotonic_ns());
  if (!g_rounds.paused) return;
  mark_stretch(MarkPhase::kEnd, now_ns());
  g_rounds.paused = false;
}

}  // namespace tidemark::injector
