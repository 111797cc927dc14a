// Iterations from the program's own loops, as its Python stacks show them.
//
// While a function runs, the line it has reached moves forward; where it moves back, a loop of this
// function begins another round. A function that is called again begins one, too. So the order of
// stacks shows every loop of the program, at every level of its calls. The step is one of them: the
// innermost whose rounds each have an optimizer step, else a backward pass; for a program that does
// not train, the outermost. Loops inside a module are its layers, and loops inside PyTorch are not
// the program's.
#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "analysis/insight/steps.h"
#include "proto/base/hash.h"

namespace tidemark {

namespace {

constexpr size_t kLeastRounds = 3;
constexpr double kMost = 0.7;  // of the rounds
// Recorders store fewer frames. Where a forged file has more, the innermost are no places: going
// from one stack to the next costs at most twice as much.
constexpr uint32_t kDeepest = 256;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Recordings name functions in full, "Model.forward", snapshots do not.
bool is_forward(std::string_view function) {
  return function == "forward" || function.ends_with(".forward");
}

// The Python part of a stack: a line of a function, called from another one.
struct Place {
  uint32_t caller = 0;     // place
  uint32_t outermost = 0;  // place
  uint32_t function = 0;
  uint32_t file = 0;
  uint32_t depth = 0;
  int64_t line = 0;
  bool inside = false;     // of a module's call or of PyTorch
  bool generates = false;  // a text: its rounds are tokens
  bool calls = false;      // a module that the program itself calls
  bool within_call = false;
};

class Places {
 public:
  explicit Places(const Dictionary& names) : names_(names), of_stack_(names.stack_count()) {
    places_.emplace_back();  // of stacks without Python
    std::map<std::tuple<uint32_t, uint32_t, uint32_t, int64_t>, uint32_t> known;
    for (uint32_t id = 1; id < of_stack_.size(); ++id) {
      const Frame& frame = names.frame(names.stack(id).frame);
      const uint32_t caller = of_stack_[names.stack(id).parent];
      const bool python = names.string(frame.file).ends_with(".py");
      if (!python || places_[caller].depth == kDeepest) {
        of_stack_[id] = caller;
        continue;
      }
      const auto [it, fresh] = known.try_emplace({caller, frame.function, frame.file, frame.line},
                                                 static_cast<uint32_t>(places_.size()));
      of_stack_[id] = it->second;
      if (fresh) add(frame, caller);
    }
  }

  uint32_t of(uint32_t stack) const { return stack < of_stack_.size() ? of_stack_[stack] : 0; }
  const Place& operator[](uint32_t place) const { return places_[place]; }
  bool same_function(uint32_t a, uint32_t b) const {
    return places_[a].function == places_[b].function && places_[a].file == places_[b].file;
  }
  uint32_t count() const { return static_cast<uint32_t>(places_.size()); }

 private:
  void add(const Frame& frame, uint32_t caller) {
    // Launchers and decorators of PyTorch are not among them: they run the program's own loop.
    constexpr std::string_view kInside[] = {"torch/nn/",
                                            "torch/optim/",
                                            "torch/autograd/",
                                            "torch/utils/data/",
                                            "torch/utils/checkpoint",
                                            "torch/distributed/fsdp/",
                                            "torch/distributed/_",
                                            "torch/_"};
    const std::string_view file = names_.string(frame.file);
    const std::string_view name = names_.string(frame.function);
    const Place& from = places_[caller];
    Place place{caller, caller != 0 ? from.outermost : count(), frame.function, frame.file};
    place.depth = from.depth + 1;
    place.line = frame.line;
    const bool forward = is_forward(name);
    place.inside = from.inside || forward ||
                   std::any_of(std::begin(kInside), std::end(kInside),
                               [&](std::string_view folder) { return contains(file, folder); });
    place.generates = from.generates || contains(name, "generate");
    // Wrappers of PyTorch call it. A container calls one layer after the other.
    place.within_call = from.within_call || contains(file, "torch/nn/modules/container.py") ||
                        (forward && !contains(file, "torch/"));
    place.calls = place.within_call && !from.within_call && forward;
    places_.push_back(place);
  }

  const Dictionary& names_;
  std::vector<uint32_t> of_stack_;
  std::vector<Place> places_;
};

// A function called from one place: its lines move back where a loop begins another round.
struct Function {
  uint32_t depth = 0;
  bool inside = false;  // these as in Place
  bool generates = false;
  bool calls = false;
  int64_t first_line = INT64_MAX;  // of those that it allocates at
  int64_t last_line = 0;
  std::map<std::pair<int64_t, int64_t>, uint32_t> turns;  // to a line, from a line

  uint32_t turn_count() const {
    uint32_t all = 0;
    for (const auto& [lines, count] : turns) all += count;
    return all;
  }
};

// Loops of one function that begin at the same line differ in where they end: the one over
// micro-batches ends before the optimizer's step, the one around it after.
struct Loop {
  uint32_t function = 0;
  uint32_t depth = 0;
  int64_t first_line = 0;
  int64_t last_line = 0;         // it goes back from there or beyond
  bool only_trains = false;      // a step of a program that does not train cannot be one
  bool calls = false;            // as in Place: a round is a call
  std::vector<uint32_t> rounds;  // allocations that begin one
  bool trains = false;           // its rounds have a backward pass or an optimizer's step
};

// From one allocation of a thread to the next.
struct Passage {
  uint32_t count = 0;
  uint32_t back_in = UINT32_MAX;  // function that went back
  int64_t back_from = 0;          // lines
  int64_t back_to = 0;
  std::vector<uint32_t> entered;  // functions
};

class LoopFinder {
 public:
  LoopFinder(const AllocationHistory& model, const StackRoles& roles, Places places)
      : model_(model), roles_(roles), places_(std::move(places)) {}

  std::optional<Rhythm> run() {
    survey();
    if (placed_ * 2 < unplaced_) return std::nullopt;
    find_loops();
    collect_rounds();
    const Loop* const step = chosen();
    Rhythm rhythm;
    if (step == nullptr) return rhythm;
    rhythm.confidence = 0.9;
    if (!step->trains) rhythm.end = end_of(*step);
    for (const uint32_t a : step->rounds) {
      const uint32_t event = model_.allocations.birth(a);
      if (rhythm.boundaries.empty() || rhythm.boundaries.back() < event) {
        rhythm.boundaries.push_back(event);
      }
    }
    return rhythm;
  }

 private:
  // Calls use(allocation, passage) for each one whose thread allocated before.
  template <typename Use>
  void for_each_passage(Use&& use) {
    std::unordered_map<uint64_t, uint32_t> last;  // by outermost function: one per thread
    std::unordered_map<uint32_t, uint64_t> thread_of;
    for (uint32_t a = 0; a < model_.allocations.size(); ++a) {
      if (model_.allocations.seeded(a)) continue;
      const uint32_t place = places_.of(model_.allocations.stack(a));
      if (place == 0) continue;
      auto [thread, fresh] = thread_of.try_emplace(place, 0);
      if (fresh) {
        const Place& outermost = places_[places_[place].outermost];
        thread->second = hash_word(hash_word(0, outermost.function), outermost.file);
      }
      uint32_t& before = last[thread->second];
      if (before != place) {
        const uint64_t key = (uint64_t{before} << 32) | place;
        auto [passage, unseen] = passages_.try_emplace(key);
        if (unseen) passage->second = passage_of(before, place);
        use(a, passage->second);
      }
      before = place;
    }
  }

  uint32_t function_of(uint32_t place) {
    const Place& p = places_[place];
    const auto [it, fresh] = numbers_.try_emplace({p.caller, p.function, p.file},
                                                  static_cast<uint32_t>(functions_.size()));
    if (fresh) {
      functions_.push_back({p.depth, p.inside, p.generates, p.calls, INT64_MAX, 0, {}});
    }
    return it->second;
  }

  Passage passage_of(uint32_t from, uint32_t to) {
    Passage passage;
    uint32_t a = from;
    uint32_t b = to;
    uint32_t a_below = 0;  // of the places below the common caller, the outermost
    uint32_t b_below = 0;
    const auto up = [&](uint32_t& place, uint32_t& below) {
      below = place;
      place = places_[place].caller;
    };
    while (places_[a].depth > places_[b].depth) up(a, a_below);
    while (a != b) {
      if (b_below != 0) passage.entered.push_back(function_of(b_below));
      if (places_[a].depth == places_[b].depth) up(a, a_below);
      up(b, b_below);
    }
    if (b_below == 0) return passage;
    if (a_below != 0 && places_.same_function(a_below, b_below)) {
      if (places_[b_below].line < places_[a_below].line) {
        passage.back_in = function_of(b_below);
        passage.back_from = places_[a_below].line;
        passage.back_to = places_[b_below].line;
      }
    } else {
      passage.entered.push_back(function_of(b_below));
    }
    return passage;
  }

  void survey() {
    for (uint32_t a = 0; a < model_.allocations.size(); ++a) {
      const uint32_t stack = model_.allocations.stack(a);
      if (model_.allocations.seeded(a) || roles_.of(stack) == StackRole::kBackward) continue;
      ++(places_.of(stack) != 0 ? placed_ : unplaced_);
    }
    find_lines();
    for_each_passage([](uint32_t, Passage& passage) { ++passage.count; });
    for (const auto& [key, passage] : passages_) {
      if (passage.back_in == UINT32_MAX) continue;
      functions_[passage.back_in].turns[{passage.back_to, passage.back_from}] += passage.count;
    }
  }

  // The lines of each function that it, or what it calls, allocates at.
  void find_lines() {
    std::vector<bool> seen(places_.count());
    seen[0] = true;
    for (uint32_t a = 0; a < model_.allocations.size(); ++a) {
      if (model_.allocations.seeded(a)) continue;
      uint32_t place = places_.of(model_.allocations.stack(a));
      for (; !seen[place]; place = places_[place].caller) {
        seen[place] = true;
        Function& function = functions_[function_of(place)];
        function.first_line = std::min(function.first_line, places_[place].line);
        function.last_line = std::max(function.last_line, places_[place].line);
      }
    }
  }

  void find_loops() {
    loops_in_.resize(functions_.size());
    for (uint32_t i = 0; i < functions_.size(); ++i) {
      const Function& function = functions_[i];
      const uint32_t turns = function.turn_count();
      if (turns + 1 < kLeastRounds) continue;
      if (function.calls) {
        // A module that is called again goes back from its last line to its first.
        add_loop(
            {i, function.depth, function.first_line, function.last_line, false, true, {}, false});
      }
      if (function.inside) continue;
      std::map<int64_t, uint32_t> to;
      for (const auto& [lines, count] : function.turns) to[lines.first] += count;
      // Rounds begin at the first line that the function often goes back to. A call that spans
      // several lines also goes back a little. Micro-batches go back more often than the steps
      // around them.
      constexpr uint32_t kMostParts = 16;
      for (const auto& [line, count] : to) {
        const bool often = count * 4 >= turns;
        if (often || (count + 1 >= kLeastRounds && count * kMostParts >= turns)) {
          add_loops(i, line, !often || function.generates);
        }
        if (often) break;
      }
    }
  }

  void add_loops(uint32_t function, int64_t first_line, bool only_trains) {
    constexpr size_t kMostEnds = 8;
    std::set<int64_t> ends;
    for (const auto& [lines, count] : functions_[function].turns) {
      if (lines.first <= first_line) ends.insert(lines.second);
    }
    while (ends.size() > kMostEnds) ends.erase(ends.begin());
    for (const int64_t end : ends) {
      add_loop(
          {function, functions_[function].depth, first_line, end, only_trains, false, {}, false});
    }
  }

  void add_loop(Loop loop) {
    loops_in_[loop.function].push_back(static_cast<uint32_t>(loops_.size()));
    loops_.push_back(std::move(loop));
  }

  void collect_rounds() {
    for_each_passage([&](uint32_t a, const Passage& passage) {
      if (passage.back_in != UINT32_MAX) {
        for (const uint32_t i : loops_in_[passage.back_in]) {
          Loop& loop = loops_[i];
          if (passage.back_to <= loop.first_line && passage.back_from >= loop.last_line) {
            loop.rounds.push_back(a);
          }
        }
      }
      for (const uint32_t function : passage.entered) {
        for (const uint32_t i : loops_in_[function]) loops_[i].rounds.push_back(a);
      }
    });
  }

  // The share of rounds that have one of these allocations, which ascend.
  static double share_with(const Loop& loop, const std::vector<uint32_t>& allocations) {
    size_t with = 0;
    auto next = allocations.begin();
    for (size_t i = 0; i < loop.rounds.size(); ++i) {
      const uint32_t end = i + 1 < loop.rounds.size() ? loop.rounds[i + 1] : UINT32_MAX;
      next = std::lower_bound(next, allocations.end(), loop.rounds[i]);
      with += next != allocations.end() && *next < end ? 1U : 0U;
    }
    return static_cast<double>(with) / static_cast<double>(loop.rounds.size());
  }

  // Gradients that outlive whole rounds are summed up over them: the rounds are parts of a step.
  // What stays forever is a library's workspace, or gradients that are set to zero.
  bool accumulates(const Loop& loop, const std::vector<uint32_t>& backward) const {
    uint64_t kept = 0;
    uint64_t summed = 0;
    for (const uint32_t a : backward) {
      const auto next = std::upper_bound(loop.rounds.begin(), loop.rounds.end(), a);
      if (loop.rounds.end() - next < 2) break;
      const uint32_t release = model_.allocations.release(a);
      if (release < model_.allocations.birth(*next) || release == kNever) continue;
      const uint64_t bytes = model_.allocations.block_bytes(a);
      kept += bytes;
      if (release >= model_.allocations.birth(*std::next(next))) summed += bytes;
    }
    return summed * 2 > kept;
  }

  // Allocations by what they are for, in their order.
  struct Parts {
    std::vector<uint32_t> forward;
    std::vector<uint32_t> backward;
    std::vector<uint32_t> optimizer;
    std::vector<uint32_t> loading;
  };
  Parts parts() const {
    Parts parts;
    for (uint32_t a = 0; a < model_.allocations.size(); ++a) {
      const StackRole role = roles_.of(model_.allocations.stack(a));
      if (role == StackRole::kOptimizer || role == StackRole::kOptimizerInit) {
        parts.optimizer.push_back(a);
      }
      if (model_.allocations.seeded(a)) continue;
      if (role == StackRole::kForward) parts.forward.push_back(a);
      if (role == StackRole::kBackward) parts.backward.push_back(a);
      if (role == StackRole::kLoading || role == StackRole::kModuleSetUp) {
        parts.loading.push_back(a);
      }
    }
    return parts;
  }

  // The first event after the last round that the program's other functions allocate at. A loop of
  // training ends as well, but what it kept stays.
  uint32_t end_of(const Loop& loop) {
    std::vector<bool> within(places_.count());  // callers precede the places they call
    for (uint32_t place = 1; place < places_.count(); ++place) {
      within[place] = within[places_[place].caller] || function_of(place) == loop.function;
    }
    for (uint32_t a = loop.rounds.back(); a < model_.allocations.size(); ++a) {
      const uint32_t place = places_.of(model_.allocations.stack(a));
      if (place != 0 && !within[place]) return model_.allocations.birth(a);
    }
    return kNever;
  }

  const Loop* chosen() {
    const auto [forward, backward, optimizer, loading] = parts();
    const auto more_rounds = [](const Loop* best, const Loop& loop) {
      return best == nullptr || loop.rounds.size() > best->rounds.size() ||
             (loop.rounds.size() == best->rounds.size() && loop.depth < best->depth);
    };
    Loop* by_optimizer = nullptr;
    Loop* by_backward = nullptr;
    Loop* outermost = nullptr;
    for (Loop& loop : loops_) {
      if (loop.rounds.size() < kLeastRounds) continue;
      if (share_with(loop, optimizer) >= kMost && more_rounds(by_optimizer, loop)) {
        by_optimizer = &loop;
      }
      // An optimizer whose first allocation comes after the last round has begun: all of them are
      // parts of one step.
      const bool parts = !optimizer.empty() && optimizer.front() >= loop.rounds.back();
      if (share_with(loop, backward) >= kMost && !parts && more_rounds(by_backward, loop) &&
          !accumulates(loop, backward)) {
        by_backward = &loop;
      }
      if (!loop.only_trains && covers_most(loop) && infers(loop, forward, loading) &&
          (outermost == nullptr || loop.depth < outermost->depth ||
           (loop.depth == outermost->depth && more_rounds(outermost, loop)))) {
        outermost = &loop;
      }
    }
    Loop* const training = by_optimizer != nullptr ? by_optimizer : by_backward;
    if (training != nullptr) {
      training->trains = true;
      return training;
    }
    return optimizer.empty() && backward.empty() ? outermost : nullptr;
  }

  // Whether the rounds can be steps of a program that does not train. Reading one tensor of a model
  // after the other is a loop, too, and so is preparing the parts of a batch.
  bool infers(const Loop& loop, const std::vector<uint32_t>& forward,
              const std::vector<uint32_t>& loading) const {
    if (forward.empty()) return share_with(loop, loading) < kMost;
    return share_with(loop, forward) >= kMost && !continues(loop, forward) &&
           (!loop.calls || leaves_nothing(loop));
  }

  // Whether each round frees what it allocated. A module that only repeats its layers also goes
  // back from its last line to its first, but it has a result to go on with. A kept loss is tiny.
  bool leaves_nothing(const Loop& loop) const {
    uint64_t made = 0;
    uint64_t left = 0;
    auto next = loop.rounds.begin();
    for (uint32_t a = loop.rounds.front(); a < loop.rounds.back(); ++a) {
      while (*next <= a) ++next;
      const uint64_t bytes = model_.allocations.block_bytes(a);
      const uint32_t release = model_.allocations.release(a);
      made += bytes;
      if (release != kNever && release > model_.allocations.birth(*next)) left += bytes;
    }
    return left <= made / 100;
  }

  // Whether the first round reads a prompt, and the others each add a token to it: they are parts
  // of one answer. All of them are far smaller than the first one, and alike.
  bool continues(const Loop& loop, const std::vector<uint32_t>& forward) const {
    constexpr uint64_t kFarSmaller = 8;
    std::vector<uint64_t> bytes(loop.rounds.size());
    for (const uint32_t a : forward) {
      const auto next = std::upper_bound(loop.rounds.begin(), loop.rounds.end(), a);
      const bool stays = model_.allocations.release(a) == kNever;  // a library's workspace
      if (next == loop.rounds.begin() || stays) continue;
      bytes[static_cast<size_t>(next - loop.rounds.begin()) - 1] +=
          model_.allocations.block_bytes(a);
    }
    const auto [least, most] = std::minmax_element(bytes.begin() + 1, bytes.end());
    return *most <= 2 * *least && bytes.front() > kFarSmaller * *most;
  }

  bool covers_most(const Loop& loop) const {
    return loop.rounds.back() - loop.rounds.front() >= model_.allocations.size() / 2;
  }

  const AllocationHistory& model_;
  const StackRoles& roles_;
  const Places places_;
  std::unordered_map<uint64_t, Passage> passages_;  // from one place to another
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t> numbers_;
  std::vector<Function> functions_;
  std::vector<Loop> loops_;
  std::vector<std::vector<uint32_t>> loops_in_;  // by function
  uint32_t placed_ = 0;                          // allocations whose stack has Python frames
  uint32_t unplaced_ = 0;                        // the others, without the backward pass
};

}  // namespace

std::optional<Rhythm> boundaries_from_loops(const ProcessModel& process,
                                            const AllocationHistory& model,
                                            const StackRoles& roles) {
  return LoopFinder(model, roles, Places(process.names)).run();
}

}  // namespace tidemark
