#include "analysis/insight/phases.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "analysis/insight/training_lines.h"
#include "analysis/names/module_stacks.h"

namespace tidemark {

namespace {

bool is_training_role(StackRole role) {
  return role == StackRole::kBackward || role == StackRole::kOptimizer ||
         role == StackRole::kOptimizerInit;
}

// A run of allocations of one kind, up to where another kind begins.
class PhaseRun {
 public:
  PhaseRun(PhaseKind kind, uint32_t least_births, std::vector<Phase>& out)
      : kind_(kind), least_births_(least_births), out_(out) {}

  void birth(const Allocation& a, bool generates = false) {
    if (births_++ == 0) first_ = a.birth;
    generated_ += generates ? 1 : 0;
    bytes_ += a.block_bytes;
    if (a.release == kNever) kept_bytes_ += a.block_bytes;
  }
  // Memory that is never freed was set up, like the buffers of a captured graph, unless the program
  // died before it could free it.
  void end(uint32_t event, bool died) {
    const bool passes = died || kept_bytes_ <= bytes_ / 2;
    const PhaseKind kind = 2 * generated_ > births_ ? PhaseKind::kGeneration : kind_;
    if (births_ >= least_births_ && passes) out_.push_back({kind, first_, event, {}});
    births_ = 0;
    generated_ = 0;
    bytes_ = 0;
    kept_bytes_ = 0;
  }
  bool runs() const { return births_ != 0; }
  uint32_t first() const { return first_; }

 private:
  PhaseKind kind_;
  uint32_t least_births_;
  std::vector<Phase>& out_;
  uint32_t first_ = 0;
  uint32_t births_ = 0;
  uint32_t generated_ = 0;  // of them, by functions that generate
  uint64_t bytes_ = 0;
  uint64_t kept_bytes_ = 0;
};

// Rollouts of reinforcement learning, or samples that a training run makes now and then.
std::vector<bool> generating_stacks(const Dictionary& names) {
  return stacks_with(names, [&](const Frame& frame) {
    const std::string_view function = names.string(frame.function);
    return function.find("generate") != std::string_view::npos ||
           function.find("rollout") != std::string_view::npos ||
           function.find("sample") != std::string_view::npos;
  });
}

// Whether an error came between two events.
bool failed_between(const AllocationHistory& model, uint32_t first, uint32_t last) {
  return std::any_of(model.failures.begin(), model.failures.end(), [&](const FailedAllocation& f) {
    return first <= f.event && f.event <= last;
  });
}

void find_by_stacks(const Dictionary& names, const AllocationHistory& model,
                    const StackRoles& roles, std::vector<Phase>& phases) {
  constexpr uint32_t kLeastForwardBirths = 4;  // a single call of a module is not a validation
  const TrainingLines lines(model, roles);
  const bool trains = lines.any();
  const std::vector<bool> in_module = module_stacks(names);
  const std::vector<bool> generates = generating_stacks(names);
  PhaseRun validation(PhaseKind::kValidation, kLeastForwardBirths, phases);
  PhaseRun saving(PhaseKind::kSaving, 1, phases);
  const bool died = !model.failures.empty();
  uint32_t trained = 0;  // event of the last birth in training
  for (const Allocation& a : model.allocations) {
    if (a.seeded) continue;
    const StackRole role = roles.of(a.stack);
    const bool forward = role == StackRole::kForward;
    // A program that never trains has no validation: all of it is inference.
    const bool validates = trains && forward && !lines.trains(roles.caller_of(a.stack));
    // A function that the program calls outside a module, as a loss, is part of either.
    if (validates && in_module[a.stack]) validation.birth(a, generates[a.stack]);
    if (role == StackRole::kSaving) saving.birth(a);
    if ((forward && !validates) || is_training_role(role)) {
      validation.end(a.birth, died);
      trained = a.birth;
    }
    if (forward || is_training_role(role)) saving.end(a.birth, died);
  }
  // A step that failed and is tried again at another line is no validation.
  const bool retries = validation.runs() && failed_between(model, trained, validation.first());
  if (!retries) validation.end(model.event_count(), died);
  saving.end(model.event_count(), died);
}

// Whether a range that the program named is one of the two.
bool kind_of_name(std::string_view name, PhaseKind& kind) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto has = [&](std::string_view part) { return lower.find(part) != std::string::npos; };
  // "checkpoint" alone is also the recomputing of activations.
  if (has("save") && (has("checkpoint") || has("ckpt") || has("state") || has("model"))) {
    kind = PhaseKind::kSaving;
    return true;
  }
  kind = PhaseKind::kGeneration;
  if (has("rollout") || lower.starts_with("generat")) return true;
  kind = PhaseKind::kValidation;
  return has("validat") || lower.starts_with("eval");
}

void find_by_marks(const ProcessModel& process, const AllocationHistory& model,
                   std::vector<Phase>& phases) {
  struct Begin {
    PhaseKind kind;
    int64_t time_ns;
  };
  // A range with a correlation may end on another thread, and its end may have no name.
  using Key = std::tuple<MarkKind, uint64_t, uint32_t, uint32_t>;
  const auto key_of = [](const Mark& m) {
    return m.correlation != 0 ? Key{m.kind, m.correlation, 0, 0} : Key{m.kind, 0, m.thread, m.name};
  };
  std::map<Key, std::vector<Begin>> open;
  for (const Mark& mark : process.marks) {
    if (mark.phase == MarkPhase::kBegin) {
      PhaseKind kind{};
      if (kind_of_name(process.names.string(mark.name), kind)) {
        open[key_of(mark)].push_back({kind, mark.time_ns});
      }
      continue;
    }
    const auto begun = open.find(key_of(mark));
    if (mark.phase != MarkPhase::kEnd || begun == open.end()) continue;
    const Begin begin = begun->second.back();
    begun->second.pop_back();
    if (begun->second.empty()) open.erase(begun);
    uint32_t last = 0;
    if (!model.event_at(mark.time_ns, last)) continue;
    uint32_t before = 0;
    const uint32_t first = model.event_at(begin.time_ns, before) ? before + 1 : 0;
    if (first <= last) phases.push_back({begin.kind, first, last + 1, {}});
  }
}

// Joins overlapping or adjacent phases of one kind.
void join(std::vector<Phase>& phases) {
  std::stable_sort(phases.begin(), phases.end(), [](const Phase& a, const Phase& b) {
    return a.kind != b.kind ? a.kind < b.kind : a.first < b.first;
  });
  std::vector<Phase> joined;
  for (const Phase& p : phases) {
    if (!joined.empty() && joined.back().kind == p.kind && p.first <= joined.back().last) {
      joined.back().last = std::max(joined.back().last, p.last);
    } else {
      joined.push_back(p);
    }
  }
  phases = std::move(joined);
}

Peak peak_within(const AllocationHistory& model, uint32_t first, uint32_t last) {
  uint64_t level = first == 0 ? 0 : model.totals_after(first - 1).allocated;
  Peak peak;
  for (uint32_t e = first; e < last; ++e) {
    model.passed(e);
    const uint32_t s = model.subject[e];
    if (model.change[e] == Change::kBirth) level += model.allocations.block_bytes(s);
    if (model.change[e] == Change::kRelease) level -= model.allocations.block_bytes(s);
    if (level > peak.bytes) peak = {level, model.time_ns[e], e};
  }
  return peak;
}

}  // namespace

std::vector<Phase> find_phases(const ProcessModel& process, const AllocationHistory& model,
                               const StackRoles& roles, const Steps& steps) {
  std::vector<Phase> phases;
  // The first step of a history that began late is like the others.
  if (steps.count() >= 2 && model.seeded_blocks == 0) {
    phases.push_back({PhaseKind::kFirstStep, steps.boundaries[0], steps.boundaries[1], {}});
  }
  find_by_stacks(process.names, model, roles, phases);
  find_by_marks(process, model, phases);
  join(phases);
  std::stable_sort(phases.begin(), phases.end(),
                   [](const Phase& a, const Phase& b) { return a.first < b.first; });
  for (Phase& p : phases) p.peak = peak_within(model, p.first, p.last);
  return phases;
}

}  // namespace tidemark
