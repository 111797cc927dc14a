#include "analysis/insight/phases.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "analysis/insight/training_lines.h"
#include "analysis/names/module_stacks.h"
#include "analysis/names/program_places.h"
#include "analysis/names/stacks_with.h"

namespace tidemark {

namespace {

bool is_training_role(StackRole role) {
  return role == StackRole::kBackward || role == StackRole::kOptimizer ||
         role == StackRole::kOptimizerInit;
}

// What the functions of a forward pass are named after.
enum class Purpose : uint8_t { kNone, kEvaluates, kGenerates };

// Allocations of one phase.
struct PhaseRun {
  uint32_t first = 0;     // event
  uint32_t end = kNever;  // the first event that is not part of it
  uint32_t scope = 0;     // place that calls the function that makes the passes; 0: the program
  uint32_t around = 0;    // the same with what came after it, from `end` on
  uint32_t births = 0;
  uint32_t evaluate = 0;  // of them, by functions that do
  uint32_t generate = 0;
  uint64_t bytes = 0;
  uint64_t kept_bytes = 0;

  void add(const Allocation& a, Purpose purpose) {
    ++births;
    evaluate += purpose == Purpose::kEvaluates ? 1 : 0;
    generate += purpose == Purpose::kGenerates ? 1 : 0;
    bytes += a.block_bytes;
    if (a.release == kNever) kept_bytes += a.block_bytes;
  }
  void add(const PhaseRun& later) {
    births += later.births;
    evaluate += later.evaluate;
    generate += later.generate;
    bytes += later.bytes;
    kept_bytes += later.kept_bytes;
  }
  // Memory that is never freed was set up, like the buffers of a captured graph.
  bool is_set_up() const { return kept_bytes > bytes / 2; }
  PhaseKind kind() const {
    return 2 * generate > births   ? PhaseKind::kGeneration
           : 2 * evaluate > births ? PhaseKind::kValidation
                                   : PhaseKind::kForwardOnly;
  }
};

// The forward passes between two of training. One that comes back to the function of an earlier one
// belongs to it, with all in between, such as the next batch of a loop around that function.
class ForwardRuns {
 public:
  explicit ForwardRuns(const Dictionary& names) : places_(names) {}

  // Of a module. `caller`: the line that called it.
  void pass(const Allocation& a, uint32_t caller, Purpose purpose) {
    if (!other(a)) {
      const uint32_t scope = places_[places_.of(caller)].caller;
      runs_.push_back({a.birth, kNever, scope, scope});
    }
    runs_.back().add(a, purpose);
  }
  // Returns whether it is part of a run.
  bool other(const Allocation& a) {
    if (runs_.empty() || a.stack == 0) return false;
    const uint32_t place = places_.of(a.stack);
    size_t at = runs_.size();
    while (at > 0 && !is_below(place, runs_[at - 1].scope)) --at;
    if (at == 0) {
      PhaseRun& last = runs_.back();
      last.end = std::min(last.end, a.birth);
      last.around = common(last.around, place);
      return false;
    }
    for (; runs_.size() > at; runs_.pop_back()) {
      PhaseRun& before = runs_[runs_.size() - 2];
      before.add(runs_.back());
      before.around = common(before.around, runs_.back().around);
    }
    PhaseRun& run = runs_.back();
    run.scope = run.around;
    run.end = kNever;
    return true;
  }
  // Hands the runs over: what follows at `event` is no part of them.
  std::vector<PhaseRun> end(uint32_t event) {
    for (size_t i = 0; i < runs_.size(); ++i) {
      runs_[i].end =
          std::min({runs_[i].end, event, i + 1 < runs_.size() ? runs_[i + 1].first : event});
    }
    return std::exchange(runs_, {});
  }
  bool any() const { return !runs_.empty(); }
  uint32_t first() const { return runs_.front().first; }

 private:
  // Callers precede the places they call.
  bool is_below(uint32_t place, uint32_t scope) const {
    while (place > scope) place = places_[place].caller;
    return place == scope;
  }
  uint32_t common(uint32_t a, uint32_t b) const {
    while (a != b) {
      uint32_t& deeper = a > b ? a : b;
      deeper = places_[deeper].caller;
    }
    return a;
  }

  // Lines of Python: snapshots with the stacks of C++ place native frames now before a line, now
  // after it.
  const Places places_;
  std::vector<PhaseRun> runs_;
};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
}
bool is_capital(char c) {
  return std::isupper(static_cast<unsigned char>(c)) != 0;
}
char small(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

// Whether a word of a name, as in "run_test", "Trainer.test_step" or "runTest", is this one or, if
// it need not be whole, begins with it.
bool has_word(std::string_view name, std::string_view word, bool whole) {
  const auto begins = [&](size_t at) {
    return at == 0 || !is_letter(name[at - 1]) ||
           (is_capital(name[at]) && !is_capital(name[at - 1]));
  };
  const auto same = [](char a, char b) { return small(a) == b; };
  for (size_t at = 0; at + word.size() <= name.size(); ++at) {
    const std::string_view found = name.substr(at, word.size());
    if (!begins(at) || !std::equal(found.begin(), found.end(), word.begin(), same)) continue;
    const size_t after = at + word.size();
    if (!whole || after == name.size() || !is_letter(name[after]) || is_capital(name[after])) {
      return true;
    }
  }
  return false;
}

bool names_validation(std::string_view name) {
  return has_word(name, "valid", false) || has_word(name, "eval", false) ||
         has_word(name, "val", true) || has_word(name, "test", true);
}

bool evaluates(std::string_view function) {
  // A class may be named after any of these, as one that learns a metric.
  const std::string_view own = function.substr(function.rfind('.') + 1);
  return names_validation(function) || has_word(own, "accuracy", false) ||
         has_word(own, "metric", true) || has_word(own, "metrics", true);
}

// Rollouts of reinforcement learning, or samples that a training run makes now and then.
bool generates(std::string_view function) {
  return contains(function, "generate") || contains(function, "rollout") ||
         contains(function, "sample");
}

// By stack, of any of its functions: stacks that call modules name what these are called for.
class Purposes {
 public:
  explicit Purposes(const Dictionary& names)
      : evaluate_(stacks_with(
            names,
            [&](const Frame& f) { return is_python(f) && evaluates(names.string(f.function)); })),
        generate_(stacks_with(
            names, [&](const Frame& f) { return is_python(f) && generates(lower(names, f)); })) {}

  // A model has functions of any name: only its caller tells that it evaluates.
  Purpose of(uint32_t stack, uint32_t caller) const {
    return generate_[stack]    ? Purpose::kGenerates
           : evaluate_[caller] ? Purpose::kEvaluates
                               : Purpose::kNone;
  }

 private:
  // The interpreter's own functions are called _PyEval_EvalFrameDefault and the like.
  static bool is_python(const Frame& frame) { return frame.kind == FrameKind::kPython; }
  static std::string lower(const Dictionary& names, const Frame& frame) {
    std::string text(names.string(frame.function));
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
  }

  std::vector<bool> evaluate_;
  std::vector<bool> generate_;
};

// Whether an error came between two events.
bool failed_between(const AllocationHistory& model, uint32_t first, uint32_t last) {
  return std::any_of(model.failures.begin(), model.failures.end(), [&](const FailedAllocation& f) {
    return first <= f.event && f.event <= last;
  });
}

// Adds the runs that are phases. A program that died could not free what it kept.
void add_phases(const std::vector<PhaseRun>& runs, bool died, std::vector<Phase>& phases) {
  constexpr uint32_t kLeastBirths = 4;  // a single call of a module is not a validation
  for (const PhaseRun& run : runs) {
    if (run.births < kLeastBirths || (run.is_set_up() && !died)) continue;
    phases.push_back({run.kind(), run.first, run.end, {}});
  }
}

void find_forward_only(const Dictionary& names, const AllocationHistory& model,
                       const StackRoles& roles, std::vector<Phase>& phases) {
  const TrainingLines lines(model, roles);
  // A program that never trains has no validation: all of it is inference.
  if (!lines.any()) return;
  const std::vector<bool> in_module = module_stacks(names);
  const Purposes purposes(names);
  // Checkpointing keeps only the input for the backward pass, which runs the layers again.
  const std::vector<bool> checkpoints = stacks_with(names, [&](const Frame& f) {
    return names.string(f.file).ends_with("torch/utils/checkpoint.py");
  });
  ForwardRuns runs(names);
  const bool died = !model.failures.empty();
  uint32_t trained = 0;  // event of the last birth in training
  for (const Allocation& a : model.allocations) {
    if (a.seeded) continue;
    const StackRole role = roles.of(a.stack);
    const uint32_t caller = roles.caller_of(a.stack);
    const bool forward = role == StackRole::kForward;
    const bool repeats =
        forward && checkpoints[a.stack] && purposes.of(a.stack, caller) == Purpose::kNone;
    if ((forward && lines.trains(caller)) || repeats || is_training_role(role)) {
      add_phases(runs.end(a.birth), died, phases);
      trained = a.birth;
    } else if (forward && in_module[a.stack]) {
      runs.pass(a, caller, purposes.of(a.stack, caller));
    } else {
      // A function that the program calls outside a module, as a loss, is part of either.
      runs.other(a);
    }
  }
  // A step that failed and is tried again at another line is no validation.
  const bool retries = runs.any() && failed_between(model, trained, runs.first());
  if (!retries) add_phases(runs.end(model.event_count()), died, phases);
}

void find_saving(const AllocationHistory& model, const StackRoles& roles,
                 std::vector<Phase>& phases) {
  const bool died = !model.failures.empty();
  PhaseRun run;
  const auto end = [&](uint32_t event) {
    if (run.births != 0 && (died || !run.is_set_up())) {
      phases.push_back({PhaseKind::kSaving, run.first, event, {}});
    }
    run = {};
  };
  for (const Allocation& a : model.allocations) {
    if (a.seeded) continue;
    const StackRole role = roles.of(a.stack);
    if (role == StackRole::kSaving) {
      if (run.births == 0) run.first = a.birth;
      run.add(a, Purpose::kNone);
    }
    if (role == StackRole::kForward || is_training_role(role)) end(a.birth);
  }
  end(model.event_count());
}

// Whether a range that the program named is one of the two.
bool kind_of_name(std::string_view name, PhaseKind& kind) {
  const auto has = [&](std::string_view word) { return has_word(name, word, false); };
  // "checkpoint" alone is also the recomputing of activations.
  if (has("sav") && (has("checkpoint") || has("ckpt") || has("state") || has("model"))) {
    kind = PhaseKind::kSaving;
    return true;
  }
  kind = PhaseKind::kGeneration;
  if (has("rollout") || has("generat")) return true;
  kind = PhaseKind::kValidation;
  return names_validation(name);
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

// Forward passes in a range that the program named are what its name says. Both are joined.
void drop_named(std::vector<Phase>& phases, const std::vector<Phase>& named) {
  std::erase_if(phases, [&](const Phase& p) {
    if (p.kind != PhaseKind::kForwardOnly) return false;
    const auto next = std::partition_point(named.begin(), named.end(),
                                           [&](const Phase& n) { return n.last <= p.first; });
    return next != named.end() && next->first < p.last;
  });
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
  find_forward_only(process.names, model, roles, phases);
  find_saving(model, roles, phases);
  std::vector<Phase> named;
  find_by_marks(process, model, named);
  for (const PhaseKind kind : {PhaseKind::kValidation, PhaseKind::kGeneration}) {
    std::vector<Phase> of_kind;
    std::copy_if(named.begin(), named.end(), std::back_inserter(of_kind),
                 [&](const Phase& p) { return p.kind == kind; });
    join(of_kind);
    drop_named(phases, of_kind);
  }
  phases.insert(phases.end(), named.begin(), named.end());
  join(phases);
  std::stable_sort(phases.begin(), phases.end(),
                   [](const Phase& a, const Phase& b) { return a.first < b.first; });
  for (Phase& p : phases) p.peak = peak_within(model, p.first, p.last);
  return phases;
}

}  // namespace tidemark
