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
#include <tuple>
#include <unordered_map>

#include "analysis/names/program_places.h"
#include "analysis/steps/loop_rounds.h"
#include "analysis/steps/steps.h"
#include "analysis/steps/token_rounds.h"
#include "proto/base/hash.h"

namespace tidemark {

namespace {

constexpr size_t kLeastRounds = 3;
constexpr double kMost = 0.7;  // of the rounds

// A function called from one place: its lines move back where a loop begins another round.
struct Function {
  uint32_t depth = 0;
  bool inside = false;  // these as in Place
  bool generates = false;
  bool calls = false;
  int64_t first_line = INT64_MAX;  // of those that it allocates at
  int64_t last_line = 0;
  std::map<std::pair<int64_t, int64_t>, uint32_t> turns;  // to a line, from a line
  uint32_t entries = 0;                                   // calls after something else

  uint32_t turn_count() const {
    uint32_t all = 0;
    for (const auto& [lines, count] : turns) all += count;
    return all;
  }
};

// What a loop's rounds can be steps of. Calls of a module are steps of inference only, and only as
// parts of another loop if the program allocates between them; rounds around micro-batches, and
// those of a function that generates something, are steps of training only. Rounds around many
// others are steps only if these are tokens.
enum class LoopUse : uint8_t { kAny, kTraining, kInference, kPart, kAround };

// Loops of one function that begin at the same line differ in where they end: the one over
// micro-batches ends before the optimizer's step, the one around it after.
struct Loop {
  uint32_t function = 0;
  uint32_t depth = 0;
  int64_t first_line = 0;
  int64_t last_line = 0;  // it goes back from there or beyond
  LoopUse use = LoopUse::kAny;
  std::vector<uint32_t> rounds;   // allocations that begin one
  std::vector<uint32_t> entries;  // those of them at which the function was called
  bool trains = false;            // its rounds have a backward pass or an optimizer's step
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
  LoopFinder(const ProcessModel& process, const AllocationHistory& model, const StackRoles& roles)
      : model_(model), roles_(roles), places_(process.names) {
    for (const SegmentState& s : process.segment_states) {
      if (s.device == model.device && s.pool != 0) private_[s.address] = s.address + s.size_bytes;
    }
  }

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
    const std::vector<uint32_t> rounds =
        step->trains ? step->rounds
                     : split_rounds(model_.allocations, step->rounds, lines_in(step->function));
    for (const uint32_t a : rounds) {
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
      functions_.push_back({p.depth, p.inside, p.generates, p.calls, INT64_MAX, 0, {}, 0});
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
      for (const uint32_t function : passage.entered) functions_[function].entries += passage.count;
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
      if (turns + 1 < kLeastRounds) {
        if (function.calls && function.entries >= kLeastRounds) {
          add_loop(i, function.first_line, function.last_line, LoopUse::kPart);
        }
        continue;
      }
      if (function.calls) {
        // A module that is called again goes back from its last line to its first.
        add_loop(i, function.first_line, function.last_line, LoopUse::kInference);
      }
      if (function.inside) continue;
      std::map<int64_t, uint32_t> to;
      for (const auto& [lines, count] : function.turns) to[lines.first] += count;
      // Rounds begin at the first line that the function often goes back to. A call that spans
      // several lines also goes back a little. Micro-batches and tokens go back more often than the
      // steps and requests around them.
      constexpr uint32_t kMostParts = 16;
      for (const auto& [line, count] : to) {
        const bool often = count * 4 >= turns;
        if (often || (count + 1 >= kLeastRounds && count * kMostParts >= turns)) {
          add_loops(i, line, function.generates ? LoopUse::kTraining : LoopUse::kAny);
        } else if (count + 1 >= kLeastRounds) {
          add_loops(i, line, LoopUse::kAround);
        }
        if (often) break;
      }
    }
  }

  void add_loops(uint32_t function, int64_t first_line, LoopUse use) {
    constexpr size_t kMostEnds = 8;
    std::set<int64_t> ends;
    for (const auto& [lines, count] : functions_[function].turns) {
      if (lines.first <= first_line) ends.insert(lines.second);
    }
    while (ends.size() > kMostEnds) ends.erase(ends.begin());
    for (const int64_t end : ends) add_loop(function, first_line, end, use);
  }

  void add_loop(uint32_t function, int64_t first_line, int64_t last_line, LoopUse use) {
    loops_in_[function].push_back(static_cast<uint32_t>(loops_.size()));
    const uint32_t depth = functions_[function].depth;
    loops_.push_back({function, depth, first_line, last_line, use, {}, {}, false});
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
        for (const uint32_t i : loops_in_[function]) {
          loops_[i].rounds.push_back(a);
          loops_[i].entries.push_back(a);
        }
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
    std::vector<uint32_t> captured;  // in private pools
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
      if (is_private(model_.allocations[a])) parts.captured.push_back(a);
    }
    return parts;
  }

  // The state at the end has each segment's pool in every version; events have it from 2.12 on.
  bool is_private(const Allocation& a) const {
    if (a.pool != 0) return true;
    auto segment = private_.upper_bound(a.address);
    return segment != private_.begin() && a.address < (--segment)->second;
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
    const Parts parts = this->parts();
    const bool trains = !parts.optimizer.empty() || !parts.backward.empty();
    return trains ? chosen_for_training(parts) : chosen_for_inference(parts);
  }

  static bool more_rounds(const Loop& loop, const Loop* best) {
    return best == nullptr || loop.rounds.size() > best->rounds.size() ||
           (loop.rounds.size() == best->rounds.size() && loop.depth < best->depth);
  }

  const Loop* chosen_for_training(const Parts& parts) {
    Loop* by_optimizer = nullptr;
    Loop* by_backward = nullptr;
    for (Loop& loop : loops_) {
      const bool trains = loop.use == LoopUse::kAny || loop.use == LoopUse::kTraining;
      if (loop.rounds.size() < kLeastRounds || !trains) continue;
      if (share_with(loop, parts.optimizer) >= kMost && more_rounds(loop, by_optimizer)) {
        by_optimizer = &loop;
      }
      // An optimizer whose first allocation comes after the last round has begun: all of them are
      // parts of one step.
      const bool one_step =
          !parts.optimizer.empty() && parts.optimizer.front() >= loop.rounds.back();
      if (share_with(loop, parts.backward) >= kMost && !one_step &&
          more_rounds(loop, by_backward) && !accumulates(loop, parts.backward)) {
        by_backward = &loop;
      }
    }
    Loop* const best = by_optimizer != nullptr ? by_optimizer : by_backward;
    if (best == nullptr) return nullptr;
    best->trains = true;
    join_beginnings(*best, parts);
    return best;
  }

  // A function may go back before its first step has trained anything: a batch is prepared below
  // the line that the rounds begin at. What comes before that is no round of its own.
  static void join_beginnings(Loop& loop, const Parts& parts) {
    const auto any_between = [](const std::vector<uint32_t>& sorted, uint32_t begin, uint32_t end) {
      const auto next = std::lower_bound(sorted.begin(), sorted.end(), begin);
      return next != sorted.end() && *next < end;
    };
    std::vector<uint32_t> rounds;
    for (size_t i = 0; i < loop.rounds.size(); ++i) {
      const uint32_t begin = loop.rounds[i];
      rounds.push_back(begin);
      if (i + 1 == loop.rounds.size() ||
          !std::binary_search(loop.entries.begin(), loop.entries.end(), begin)) {
        continue;
      }
      const uint32_t end = loop.rounds[i + 1];
      if (!any_between(parts.backward, begin, end) && !any_between(parts.optimizer, begin, end)) {
        ++i;
      }
    }
    loop.rounds = std::move(rounds);
  }

  const Loop* chosen_for_inference(const Parts& parts) {
    const Loop* best = nullptr;
    for (const Loop& loop : loops_) {
      const bool fits = loop.use == LoopUse::kAny || loop.use == LoopUse::kInference;
      if (loop.rounds.size() < kLeastRounds || !fits) continue;
      const bool outer = best == nullptr || loop.depth < best->depth ||
                         (loop.depth == best->depth && more_rounds(loop, best));
      if (outer && covers_most(loop) && infers(loop, parts)) best = &loop;
    }
    if (best == nullptr) return nullptr;
    const Loop* const requests =
        adds_tokens(model_.allocations, best->rounds) ? requests_of(*best, parts) : nullptr;
    return requests != nullptr ? requests : shortest_of(*best, parts);
  }

  // The loop of the same function around that over the tokens of an answer.
  const Loop* requests_of(const Loop& tokens, const Parts& parts) const {
    const Loop* best = nullptr;
    for (const Loop& loop : loops_) {
      if (loop.use != LoopUse::kAround || loop.function != tokens.function) continue;
      const bool around = loop.first_line < tokens.first_line &&
                          loop.rounds.size() >= kLeastRounds && more_rounds(loop, best);
      if (around && covers_most(loop) && infers(loop, parts)) best = &loop;
    }
    return best;
  }

  // A line that calls a model again and again, and from time to time goes on to others that log or
  // collect results, repeats with every call. A request that calls the model for each of its tokens
  // begins at another line. Requests that run side by side are joined by an engine, whose step is
  // the call.
  const Loop* shortest_of(const Loop& step, const Parts& parts) {
    const bool overlap =
        rounds_overlap(model_.allocations, step.rounds, lines_in(step.function), step.first_line);
    const Loop* shortest = &step;
    for (const Loop& loop : loops_) {
      const bool calls = loop.use == LoopUse::kInference || loop.use == LoopUse::kPart ||
                         (overlap && loop.use == LoopUse::kAny);
      if (!calls || !more_rounds(loop, shortest)) continue;
      const uint32_t caller = called_from(loop.function, step.function);
      const bool repeats = caller != 0 && (overlap || places_[caller].line == step.first_line);
      if (repeats && covers_most(loop) && infers(loop, parts)) shortest = &loop;
    }
    return shortest;
  }

  // By allocation: the line of a function at or under which it was made; 0: in another function.
  std::vector<int64_t> lines_in(uint32_t function) {
    std::vector<int64_t> lines(places_.count());  // callers precede the places they call
    for (uint32_t place = 1; place < places_.count(); ++place) {
      const bool own = function_of(place) == function;
      lines[place] = own ? places_[place].line : lines[places_[place].caller];
    }
    std::vector<int64_t> of_allocations;
    of_allocations.reserve(model_.allocations.size());
    for (uint32_t a = 0; a < model_.allocations.size(); ++a) {
      of_allocations.push_back(lines[places_.of(model_.allocations.stack(a))]);
    }
    return of_allocations;
  }

  // The place in `outer` from which a function is called, if it is; 0: it is not.
  uint32_t called_from(uint32_t function, uint32_t outer) {
    const auto self = std::find_if(numbers_.begin(), numbers_.end(),
                                   [&](const auto& entry) { return entry.second == function; });
    uint32_t place = self == numbers_.end() ? 0 : std::get<0>(self->first);
    while (place != 0 && function_of(place) != outer) place = places_[place].caller;
    return place;
  }

  // Whether the rounds can be steps of a program that does not train. Reading one tensor of a model
  // after the other is a loop, too, and so is preparing the parts of a batch, and capturing CUDA
  // graphs, each into a private pool.
  bool infers(const Loop& loop, const Parts& parts) const {
    if (share_with(loop, parts.captured) >= kMost) return false;
    if (parts.forward.empty()) return share_with(loop, parts.loading) < kMost;
    return share_with(loop, parts.forward) >= kMost && !continues(loop, parts.forward) &&
           (loop.use == LoopUse::kAny || loop.use == LoopUse::kAround || leaves_nothing(loop));
  }

  // Whether each round frees what it allocated. A module that only repeats its layers also goes
  // back from its last line to its first, but it has a result to go on with. A kept loss is tiny.
  // The program prepares the input of a call in the round before it.
  bool leaves_nothing(const Loop& loop) const {
    uint64_t made = 0;
    uint64_t left = 0;
    auto next = loop.rounds.begin();
    for (uint32_t a = loop.rounds.front(); a < loop.rounds.back(); ++a) {
      while (*next <= a) ++next;
      const uint64_t bytes = model_.allocations.block_bytes(a);
      const uint32_t release = model_.allocations.release(a);
      const bool own = roles_.of(model_.allocations.stack(a)) == StackRole::kForward;
      const auto end = own || std::next(next) == loop.rounds.end() ? next : std::next(next);
      made += bytes;
      if (release != kNever && release > model_.allocations.birth(*end)) left += bytes;
    }
    return left <= made / 100;
  }

  // What the forward passes of one round allocate.
  struct RoundUse {
    uint64_t bytes = 0;  // under the lines that call a module in most rounds
    uint64_t count = 0;
    uint64_t other_bytes = 0;  // under other lines
  };
  // Of the first rounds, which are enough to tell what they are.
  std::vector<RoundUse> uses(const Loop& loop, const std::vector<uint32_t>& forward) const {
    constexpr size_t kEnough = 256;
    std::vector<RoundUse> uses(std::min(loop.rounds.size(), kEnough));
    const uint32_t end = uses.size() < loop.rounds.size() ? loop.rounds[kEnough] : UINT32_MAX;
    const auto first = std::lower_bound(forward.begin(), forward.end(), loop.rounds.front());
    const auto for_each = [&](auto&& use) {
      size_t round = 0;
      for (auto a = first; a != forward.end() && *a < end; ++a) {
        while (round + 1 < uses.size() && loop.rounds[round + 1] <= *a) ++round;
        const bool stays = model_.allocations.release(*a) == kNever;  // a library's workspace
        if (!stays) use(round, *a, roles_.caller_of(model_.allocations.stack(*a)));
      }
    };
    struct Line {
      size_t last = SIZE_MAX;
      size_t rounds = 0;
    };
    std::unordered_map<uint32_t, Line> lines;
    for_each([&](size_t round, uint32_t, uint32_t line) {
      Line& at = lines[line];
      at.rounds += at.last != round ? 1U : 0U;
      at.last = round;
    });
    const double most = kMost * static_cast<double>(uses.size());
    for_each([&](size_t round, uint32_t a, uint32_t line) {
      const bool usual = static_cast<double>(lines[line].rounds) >= most;
      (usual ? uses[round].bytes : uses[round].other_bytes) += model_.allocations.block_bytes(a);
      uses[round].count += usual ? 1U : 0U;
    });
    return uses;
  }

  // Whether a round reads a prompt and the others each add a token to it: they are parts of an
  // answer. All of these are alike and far smaller than the prompt, which another line reads, or
  // the same one with as many allocations. Libraries that try algorithms at first make more.
  bool continues(const Loop& loop, const std::vector<uint32_t>& forward) const {
    constexpr uint64_t kFarLarger = 4;
    const std::vector<RoundUse> uses = this->uses(loop, forward);
    std::vector<RoundUse> order = uses;
    const auto middle = order.begin() + static_cast<std::ptrdiff_t>(order.size() / 2);
    std::nth_element(order.begin(), middle, order.end(),
                     [](const RoundUse& a, const RoundUse& b) { return a.bytes < b.bytes; });
    const RoundUse usual = *middle;
    const auto reads = [&](const RoundUse& use) {
      return use.other_bytes > kFarLarger * usual.bytes ||
             (use.bytes > kFarLarger * usual.bytes && 2 * use.count <= 3 * usual.count);
    };
    // The last round may be incomplete.
    const auto adds = [&](const RoundUse& use) {
      return use.bytes <= 2 * usual.bytes && (2 * use.bytes >= usual.bytes || &use == &uses.back());
    };
    return usual.bytes != 0 && reads(uses.front()) &&
           std::all_of(uses.begin(), uses.end(),
                       [&](const RoundUse& use) { return reads(use) || adds(use); });
  }

  bool covers_most(const Loop& loop) const {
    return loop.rounds.back() - loop.rounds.front() >= model_.allocations.size() / 2;
  }

  const AllocationHistory& model_;
  const StackRoles& roles_;
  const Places places_;
  std::map<uint64_t, uint64_t> private_;            // segments of private pools: address -> end
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
  return LoopFinder(process, model, roles).run();
}

}  // namespace tidemark
