// Iterations from the program's own loops, as its Python stacks show them.
//
// The step is one of them: the innermost whose rounds each have an optimizer step, else a backward
// pass; for a program that does not train, the outermost. Loops inside a module are its layers.
#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "analysis/steps/loop_rounds.h"
#include "analysis/steps/median.h"
#include "analysis/steps/program_loops.h"
#include "analysis/steps/steps.h"
#include "analysis/steps/token_rounds.h"

namespace tidemark {

namespace {

constexpr double kMost = 0.7;  // of the rounds

class StepLoops {
 public:
  StepLoops(const ProcessModel& process, const AllocationHistory& model, const StackRoles& roles)
      : model_(model), roles_(roles), program_(process.names, model, roles) {
    for (const SegmentState& s : process.segment_states) {
      if (s.device == model.device && s.pool != 0) private_[s.address] = s.address + s.size_bytes;
    }
  }

  std::optional<Rhythm> run() {
    if (!program_.are_known()) return std::nullopt;
    const Parts parts = this->parts();
    const bool trains = !parts.optimizer.empty() || !parts.backward.empty();
    const Loop* const step = trains ? chosen_for_training(parts) : chosen_for_inference(parts);
    Rhythm rhythm;
    if (step == nullptr) return rhythm;
    if (!trains && parts.forward.empty() && !is_main_work(*step)) return rhythm;
    rhythm.confidence = less_sure_ || step->use == LoopUse::kWithin ? 0.7 : 0.9;
    // A loop of training ends as well, but what it kept stays.
    if (!trains) rhythm.end = program_.end_of(engine_ != nullptr ? *engine_ : *step);
    const std::vector<uint32_t> rounds =
        trains ? step->rounds
               : split_rounds(model_.allocations, step->rounds, program_.lines_in(step->function));
    for (const uint32_t a : rounds) {
      const uint32_t event = model_.allocations.birth(a);
      if (rhythm.boundaries.empty() || rhythm.boundaries.back() < event) {
        rhythm.boundaries.push_back(event);
      }
    }
    return rhythm;
  }

 private:
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
      if (in_optimizer(role)) parts.optimizer.push_back(a);
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

  static bool more_rounds(const Loop& loop, const Loop* best) {
    return best == nullptr || loop.rounds.size() > best->rounds.size() ||
           (loop.rounds.size() == best->rounds.size() && loop.depth < best->depth);
  }

  const Loop* chosen_for_training(const Parts& parts) {
    Loop* by_optimizer = nullptr;
    Loop* by_backward = nullptr;
    for (Loop& loop : program_.loops()) {
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
    const Loop* const best = outermost(
        parts, [](LoopUse use) { return use == LoopUse::kAny || use == LoopUse::kInference; });
    if (const Loop* const answers = begun_by_prompts(best, parts)) return answers;
    if (best == nullptr) return called(parts);
    if (const Loop* const engine = engine_in(*best, parts)) return engine;
    const Loop* const requests = requests_of(*best, parts);
    return whole_of(requests != nullptr ? *requests : *shortest_of(*best, parts), parts);
  }

  // The rounds that add a token each to an only answer are no steps, nor is what they loop over,
  // such as layers.
  std::vector<const Loop*> answers(const Parts& parts) const {
    std::vector<const Loop*> found;
    for (const Loop& loop : program_.loops()) {
      const bool fits = loop.use == LoopUse::kAny || loop.use == LoopUse::kInference;
      if (!fits || loop.rounds.size() < kLeastRounds || parts.forward.empty()) continue;
      if (covers_most(loop) && share_with(loop, parts.forward) >= kMost &&
          continues(loop, parts.forward)) {
        found.push_back(&loop);
      }
    }
    return found;
  }

  template <typename Fits>
  const Loop* outermost(const Parts& parts, Fits&& fits) {
    if (!answer_loops_) answer_loops_ = answers(parts);
    const auto in_answer = [&](const Loop& loop) {
      return std::any_of(answer_loops_->begin(), answer_loops_->end(), [&](const Loop* answer) {
        return answer->depth < loop.depth &&
               program_.called_from(loop.function, answer->function) != 0;
      });
    };
    const Loop* best = nullptr;
    for (const Loop& loop : program_.loops()) {
      if (loop.rounds.size() < kLeastRounds || !fits(loop.use)) continue;
      const bool outer = best == nullptr || loop.depth < best->depth ||
                         (loop.depth == best->depth && more_rounds(loop, best));
      if (outer && covers_most(loop) && !in_answer(loop) && infers(loop, parts)) best = &loop;
    }
    return best;
  }

  // A program that allocates between the calls of one function, at the line of the call. Of a model
  // that several lines call, no line tells how often.
  const Loop* called(const Parts& parts) {
    less_sure_ = true;
    const Loop* const function =
        outermost(parts, [](LoopUse use) { return use == LoopUse::kCalled; });
    if (function != nullptr) return runs_model(*function, parts) ? function : nullptr;
    const auto& loops = program_.loops();
    const auto lines = std::count_if(loops.begin(), loops.end(), [](const Loop& loop) {
      return loop.use == LoopUse::kPart && loop.rounds.size() >= kLeastRounds;
    });
    return lines != 1 ? nullptr
                      : outermost(parts, [](LoopUse use) { return use == LoopUse::kPart; });
  }

  // Whether most of what the model allocates is under a function.
  bool runs_model(const Loop& loop, const Parts& parts) {
    const LineOfAllocation line_of = program_.lines_in(loop.function);
    const auto within = std::count_if(parts.forward.begin(), parts.forward.end(),
                                      [&](uint32_t a) { return line_of[a] != 0; });
    return static_cast<double>(within) >= kMost * static_cast<double>(parts.forward.size());
  }

  // Where one line reads a prompt and then adds its tokens, again and again, each prompt begins a
  // request. The lines before it may run in some requests only, as those that miss a cache.
  const Loop* begun_by_prompts(const Loop* best, const Parts& parts) {
    for (const Loop& loop : program_.loops()) {
      if (loop.use != LoopUse::kAny || loop.rounds.size() < kLeastRounds) continue;
      const bool within = best == nullptr ||
                          (loop.function == best->function && loop.first_line > best->first_line);
      if (!within || !covers_most(loop)) continue;
      std::vector<uint32_t> prompts = prompts_in(loop, parts.forward);
      if (prompts.size() < (best == nullptr ? kLeastRounds : best->rounds.size() + 1)) continue;
      answers_ = loop;
      answers_.rounds = std::move(prompts);
      less_sure_ = true;
      return &answers_;
    }
    return nullptr;
  }

  // The rounds that need far more than the others, which are alike and are several after each.
  std::vector<uint32_t> prompts_in(const Loop& loop, const std::vector<uint32_t>& forward) const {
    constexpr uint64_t kFarLarger = 4;
    constexpr size_t kLeastTokens = 3;
    const std::vector<RoundUse> uses = this->uses(loop, forward, SIZE_MAX);
    std::vector<uint64_t> order;
    for (const RoundUse& use : uses) order.push_back(use.bytes);
    const uint64_t usual = median(std::move(order));
    std::vector<uint32_t> prompts;
    size_t short_answers = 0;
    size_t last = 0;
    for (size_t i = 0; i < uses.size(); ++i) {
      if (uses[i].bytes > kFarLarger * usual) {
        if (!prompts.empty() && i - last <= kLeastTokens) ++short_answers;
        prompts.push_back(loop.rounds[i]);
        last = i;
      } else if (i + 1 < uses.size() && (uses[i].bytes > 2 * usual || 2 * uses[i].bytes < usual)) {
        return {};
      }
    }
    const bool begins = usual != 0 && !prompts.empty() && prompts.front() == loop.rounds.front();
    return begins && 5 * short_answers < prompts.size() ? prompts : std::vector<uint32_t>{};
  }

  // An engine admits requests in some of its rounds at an earlier line than the one that advances
  // all of them: how often that one calls a function is how many rounds there are. A request that
  // goes on token by token calls one, too, but few of them have one token.
  const Loop* engine_in(const Loop& step, const Parts& parts) {
    const Loop* engine = nullptr;
    for (const Loop& loop : program_.loops()) {
      const bool calls = loop.use == LoopUse::kAny || loop.use == LoopUse::kInference ||
                         loop.use == LoopUse::kPart || loop.use == LoopUse::kCalled;
      if (!calls || loop.function == step.function || !more_rounds(loop, &step)) continue;
      if (engine != nullptr && loop.depth >= engine->depth) continue;
      if (program_.called_from(loop.function, step.function) <= step.first_line) continue;
      if (covers_most(loop) && calls_model(loop, parts)) engine = &loop;
    }
    if (engine == nullptr || !often_meets(step, *engine)) return nullptr;
    less_sure_ = true;
    engine_ = &step;
    return engine;
  }

  // The rounds of an engine that admits requests in some of them go back to two lines. So do
  // requests that begin with a prompt and go on token by token, but few of them have one token.
  const Loop* whole_of(const Loop& step, const Parts& parts) const {
    const Loop* whole = &step;
    for (const Loop& loop : program_.loops()) {
      if (loop.use != LoopUse::kWithin || loop.function != step.function) continue;
      if (loop.first_line <= step.first_line || !more_rounds(loop, whole)) continue;
      if (calls_model(loop, parts) && covers_most(loop) && often_meets(step, loop)) whole = &loop;
    }
    return whole;
  }

  static bool calls_model(const Loop& loop, const Parts& parts) {
    return share_with(loop, parts.captured) < kMost &&
           (parts.forward.empty() || share_with(loop, parts.forward) >= kMost);
  }

  // Whether a fifth of the outer rounds or more are a single one of the inner loop.
  static bool often_meets(const Loop& outer, const Loop& inner) {
    size_t alike = 0;
    auto next = inner.rounds.begin();
    for (size_t i = 0; i + 1 < outer.rounds.size(); ++i) {
      next = std::lower_bound(next, inner.rounds.end(), outer.rounds[i]);
      const auto end = std::lower_bound(next, inner.rounds.end(), outer.rounds[i + 1]);
      alike += end - next == 1 ? 1U : 0U;
      next = end;
    }
    return 5 * alike >= outer.rounds.size();
  }

  // The loop of the same function around that over the tokens of an answer.
  const Loop* requests_of(const Loop& tokens, const Parts& parts) const {
    const bool adds = adds_tokens(model_.allocations, tokens.rounds);
    const Loop* best = nullptr;
    for (const Loop& loop : program_.loops()) {
      const bool fits = loop.use == LoopUse::kAround || (!adds && loop.use == LoopUse::kAny);
      if (!fits || loop.function != tokens.function) continue;
      const bool around = loop.first_line < tokens.first_line &&
                          loop.rounds.size() >= kLeastRounds && more_rounds(loop, best);
      if (!around || !covers_most(loop) || !infers(loop, parts)) continue;
      if (adds || reads_prompts(tokens, loop, parts.forward)) best = &loop;
    }
    return best;
  }

  // Whether the first round of each request reads a prompt and the others, which are alike and far
  // smaller, each add a token to it. How much both need differs from request to request.
  bool reads_prompts(const Loop& tokens, const Loop& requests,
                     const std::vector<uint32_t>& forward) const {
    constexpr uint64_t kFarLarger = 4;
    constexpr size_t kLeastTokens = 4;  // the last one may be incomplete
    const std::vector<RoundUse> uses = this->uses(tokens, forward);
    size_t told = 0;
    size_t answers = 0;
    for (size_t first = 0; first < uses.size();) {
      const auto next =
          std::upper_bound(requests.rounds.begin(), requests.rounds.end(), tokens.rounds[first]);
      size_t end = first + 1;
      while (end < uses.size() && (next == requests.rounds.end() || tokens.rounds[end] < *next)) {
        ++end;
      }
      std::vector<uint64_t> added;
      for (size_t i = first + 1; i + 1 < end; ++i) added.push_back(uses[i].bytes);
      if (added.size() + 2 >= kLeastTokens) {
        const auto [least, most] = std::minmax_element(added.begin(), added.end());
        const uint64_t prompt = uses[first].bytes + uses[first].other_bytes;
        ++told;
        answers += *least != 0 && *most <= 2 * *least && prompt > kFarLarger * *most ? 1U : 0U;
      }
      first = end;
    }
    return told >= kLeastRounds &&
           static_cast<double>(answers) >= kMost * static_cast<double>(told);
  }

  // A line that calls a model again and again, and from time to time goes on to others that log or
  // collect results, repeats with every call. A request that calls the model for each of its tokens
  // begins at another line. Requests that run side by side are joined by an engine, whose step is
  // the call.
  const Loop* shortest_of(const Loop& step, const Parts& parts) {
    const bool overlap = rounds_overlap(model_.allocations, step.rounds,
                                        program_.lines_in(step.function), step.first_line);
    const Loop* shortest = &step;
    for (const Loop& loop : program_.loops()) {
      const bool calls = loop.use == LoopUse::kInference || loop.use == LoopUse::kPart ||
                         (overlap && loop.use == LoopUse::kAny);
      if (!calls || !more_rounds(loop, shortest)) continue;
      const int64_t line = program_.called_from(loop.function, step.function);
      const bool repeats = line != 0 && (overlap || line == step.first_line);
      if (repeats && covers_most(loop) && infers(loop, parts)) shortest = &loop;
    }
    return shortest;
  }

  // Whether the rounds can be steps of a program that does not train. Reading one tensor of a model
  // after the other is a loop, too, and so is preparing the parts of a batch, and capturing CUDA
  // graphs, each into a private pool.
  bool infers(const Loop& loop, const Parts& parts) const {
    if (captures(loop, parts.captured)) return false;
    if (parts.forward.empty()) return share_with(loop, parts.loading) < kMost;
    return share_with(loop, parts.forward) >= kMost && !continues(loop, parts.forward) &&
           (loop.use == LoopUse::kAny || loop.use == LoopUse::kAround || leaves_nothing(loop));
  }

  // Whether the rounds capture graphs, or warm up for it: each graph after some of them, and after
  // the last one only the graphs run.
  static bool captures(const Loop& loop, const std::vector<uint32_t>& captured) {
    constexpr double kLeastCaptures = 0.05;  // of the rounds
    const double share = share_with(loop, captured);
    return share >= kMost || (share >= kLeastCaptures && captured.back() >= loop.rounds.back());
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
  // The first rounds are enough to tell what they are.
  std::vector<RoundUse> uses(const Loop& loop, const std::vector<uint32_t>& forward,
                             size_t enough = 256) const {
    std::vector<RoundUse> uses(std::min(loop.rounds.size(), enough));
    const uint32_t end = uses.size() < loop.rounds.size() ? loop.rounds[enough] : UINT32_MAX;
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

  // Of a program without a model: whether most bytes are allocated in the rounds, and not in what
  // follows a loop that prepares something, and most time passes in more than a few of them, of
  // which others are parts. The first one may load libraries.
  bool is_main_work(const Loop& loop) const {
    const AllocationColumns& all = model_.allocations;
    uint64_t bytes = 0;
    uint64_t within = 0;
    for (uint32_t a = 0; a < all.size(); ++a) {
      if (all.seeded(a)) continue;
      bytes += all.block_bytes(a);
      if (a >= loop.rounds.front() && a < loop.rounds.back()) within += all.block_bytes(a);
    }
    if (2 * within < bytes || is_preparation(loop)) return false;
    std::vector<int64_t> times;
    int64_t sum = 0;
    for (size_t i = 1; i + 1 < loop.rounds.size(); ++i) {
      times.push_back(time_of(loop.rounds[i + 1]) - time_of(loop.rounds[i]));
      sum += times.back();
    }
    std::sort(times.begin(), times.end());
    const size_t few = std::max<size_t>(1, times.size() / 10);
    int64_t longest = 0;
    for (size_t i = times.size(); i-- > times.size() - std::min(few, times.size());) {
      longest += times[i];
    }
    return times.size() < 4 || longest <= sum / 10 * 8;
  }
  // It is over before the peak, and soon.
  bool is_preparation(const Loop& loop) const {
    const int64_t begin = time_of(loop.rounds.front());
    const int64_t end = time_of(loop.rounds.back());
    const bool is_short = 2 * (end - begin) < model_.time_ns.back() - model_.time_ns.front();
    return is_short && model_.allocated_peak.time_ns > end &&
           model_.allocated_peak.bytes >= 2 * bytes_at(loop.rounds.back());
  }
  uint64_t bytes_at(uint32_t row) const {
    return model_.totals_after(model_.allocations.birth(row)).allocated;
  }
  int64_t time_of(uint32_t row) const { return model_.time_ns[model_.allocations.birth(row)]; }

  bool covers_most(const Loop& loop) const {
    return loop.rounds.back() - loop.rounds.front() >= model_.allocations.size() / 2;
  }

  const AllocationHistory& model_;
  const StackRoles& roles_;
  ProgramLoops program_;
  Loop answers_;                                          // that prompts begin
  std::optional<std::vector<const Loop*>> answer_loops_;  // once they are asked for
  const Loop* engine_ = nullptr;                          // around its steps
  bool less_sure_ = false;
  std::map<uint64_t, uint64_t> private_;  // segments of private pools: address -> end
};

}  // namespace

std::optional<Rhythm> boundaries_from_loops(const ProcessModel& process,
                                            const AllocationHistory& model,
                                            const StackRoles& roles) {
  return StepLoops(process, model, roles).run();
}

}  // namespace tidemark
