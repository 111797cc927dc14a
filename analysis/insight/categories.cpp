#include "analysis/insight/categories.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

namespace tidemark {

namespace {

struct Guess {
  Category category = Category::kUnknown;
  Confidence confidence = 0;
};

// A layer's working tensors are freed after a few more allocations; a block that outlives this many
// was kept for a reason.
constexpr uint32_t kKeptBirths = 12;
// This many kept blocks at once are a graph; a program without gradients has a handful.
constexpr uint32_t kGraphBlocks = 8;
// Events in which two blocks are freed.
constexpr uint32_t kLastFrees = 4;
constexpr size_t kGraphStacks = 3;

// Events at which an optimizer began a step, from marks; in order.
std::vector<uint32_t> optimizer_events(const ProcessModel& process,
                                       const AllocationHistory& model) {
  std::vector<uint32_t> events;
  for (const Mark& mark : process.marks) {
    const bool is_step = mark.kind == MarkKind::kOptimizerStep ||
                         process.names.string(mark.name).starts_with("Optimizer.step");
    if (!is_step || mark.phase == MarkPhase::kEnd) continue;
    uint32_t event = 0;
    if (model.event_at(mark.time_ns, event)) events.push_back(event + 1);
  }
  std::sort(events.begin(), events.end());
  return events;
}

// What cuBLAS takes for each stream and keeps (PyTorch's CUDABlas.cpp and CublasHandlePool.cpp):
// 32 MiB on Hopper and later, :4096:2:16:8 before.
bool is_workspace_size(uint64_t bytes) {
  return bytes == uint64_t{32} << 20 || bytes == (4096 * 2 + 16 * 8) * uint64_t{1024};
}

// Stacks for whose innermost Python frame, or the innermost one outside PyTorch,
// is_one(function, file) holds.
template <typename IsOne>
std::vector<bool> stacks_through(const Dictionary& names, IsOne&& is_one) {
  std::vector<bool> through(names.stack_count(), false);
  for (uint32_t id = 1; id < through.size(); ++id) {
    const Frame& frame = names.frame(names.stack(id).frame);
    const std::string_view file = names.string(frame.file);
    const uint32_t parent = names.stack(id).parent;
    const bool python = file.ends_with(".py");
    const bool inner = !python || file.find("torch/") != file.npos;
    through[id] = (python && is_one(names.string(frame.function), file)) ||
                  (inner && parent < id && through[parent]);
  }
  return through;
}

// Functions of vLLM and Hugging Face's transformers, and methods of a class that is called a cache.
bool names_cache(std::string_view function, std::string_view file) {
  const auto has = [](std::string_view text, std::string_view part) {
    return text.find(part) != text.npos;
  };
  return !has(file, "torch/") && (has(function, "kv_cache") || has(function, "Cache.") ||
                                  has(file, "cache_utils.py") || has(file, "kv_cache"));
}

bool is_fsdp(std::string_view /*function*/, std::string_view file) {
  return file.find("/fsdp/") != file.npos;
}

// States that the optimizer keeps for each parameter: two of Adam's kind, one of others. Nothing
// where its name is not known.
std::optional<uint64_t> states_per_parameter(const ProcessModel& process) {
  const Dictionary& names = process.names;
  bool known = false;
  bool adam = false;
  const auto look = [&](std::string_view text, std::string_view before, std::string_view of_adam) {
    if (text.find(before) == text.npos) return;
    known = true;
    adam |= text.find(of_adam) != text.npos;
  };
  for (const Mark& mark : process.marks) look(names.string(mark.name), "Optimizer.step#", "Adam");
  for (uint32_t i = 0; i < names.frame_count(); ++i) {
    const std::string_view file = names.string(names.frame(i).file);
    if (!file.ends_with("optim/optimizer.py")) look(file, "torch/optim/", "torch/optim/adam");
  }
  if (!known) return std::nullopt;
  return adam ? 2 : 1;
}

// Visits the allocations from the last to the first and knows, at each, when the next phase of each
// kind begins.
class Categorizer {
 public:
  Categorizer(const ProcessModel& process, const AllocationHistory& model, const StackRoles& roles,
              const Steps& steps)
      : process_(process),
        model_(model),
        roles_(roles),
        steps_(steps),
        of_cache_(stacks_through(process.names, names_cache)),
        of_fsdp_(stacks_through(process.names, is_fsdp)),
        marks_(optimizer_events(process, model)) {}

  Categories run(bool use_recorded) {
    const size_t count = model_.allocations.size();
    out_.of.resize(count);
    out_.confidence.resize(count);
    survey();
    out_.has_optimizer |= !marks_.empty();
    model_.release_pages();
    for (size_t i = count; i-- > 0;) {
      model_.passed(i);
      const Allocation& a = model_.allocations[i];
      advance_to(a);
      Guess guess = is_older(a) ? Guess{} : guess_of(a);
      if (use_recorded && a.category != Category::kUnknown) guess = {a.category, 10};
      out_.of[i] = guess.category;
      out_.confidence[i] = guess.confidence;
      if (kept_without_backward_) out_.kept_without_backward.push_back(static_cast<uint32_t>(i));
      if (guess.category == Category::kGradient && !a.seeded) {
        Gradients& known = gradients_[a.requested_bytes];
        known.all.push_back(static_cast<uint32_t>(i));
        if (meets(a, next_other_)) known.held.push_back(static_cast<uint32_t>(i));
        if (a.stack < of_fsdp_.size() && of_fsdp_[a.stack]) {
          flat_gradients_.push_back(static_cast<uint32_t>(i));
        }
      }
      if (guess.category == Category::kKvCache) cache_sizes_.insert(a.requested_bytes);
      note(a);
    }
    sort_older(use_recorded);
    std::reverse(out_.kept_without_backward.begin(), out_.kept_without_backward.end());
    keep_only_graphs();
    return std::move(out_);
  }

 private:
  void advance_to(const Allocation& a) {
    while (!marks_.empty() && marks_.back() > a.birth) {
      next_optimizer_ = std::min(next_optimizer_, marks_.back());
      marks_.pop_back();
    }
    while (failures_ != 0 && model_.failures[failures_ - 1].event >= a.birth) {
      next_failure_ = model_.failures[--failures_].event;
    }
    kept_without_backward_ = false;
    const StackRole role = roles_.of(a.stack);
    if (role == role_before_) return;
    if (role == StackRole::kForward) pass_end_ = a.birth;
    if (role == StackRole::kBackward) backward_end_ = a.birth;
  }

  // Records a visited allocation as the next of its kind for those before it.
  void note(const Allocation& a) {
    switch (roles_.of(a.stack)) {
      case StackRole::kForward:
        next_forward_ = a.birth;
        break;
      case StackRole::kBackward:
        next_backward_ = a.birth;
        break;
      case StackRole::kOptimizer:
      case StackRole::kOptimizerInit:
        next_optimizer_ = a.birth;
        break;
      default:
        break;
    }
    if (roles_.of(a.stack) != StackRole::kBackward) next_other_ = a.birth;
    role_before_ = roles_.of(a.stack);
  }

  void survey() {
    bool in_pass = false;
    for (size_t i = 0; i < model_.allocations.size(); ++i) {
      model_.passed(i);
      const Allocation& a = model_.allocations[i];
      const StackRole role = roles_.of(a.stack);
      out_.has_backward |= role == StackRole::kBackward && !a.seeded;
      out_.has_optimizer |= role == StackRole::kOptimizer || role == StackRole::kOptimizerInit;
      if (!a.seeded && outlives_step(a)) ++survivors_[a.stack];
      const bool parameter = a.category == Category::kParameter || (is_older(a) && stays(a));
      if (role == StackRole::kModuleSetUp || parameter) parameter_sizes_.insert(a.requested_bytes);
      if (a.seeded) continue;
      const bool kept = stays(a) && a.block_bytes > kSmallBytes && role == StackRole::kUser;
      if (kept) kept_sizes_.insert(a.requested_bytes);
      note_workspace(a);
      if (role == StackRole::kForward && !in_pass) passes_.push_back(a.birth);
      in_pass = role == StackRole::kForward;
    }
    if (!out_.has_backward) survey_passes();
  }

  // Each thread that multiplies has one for each of its streams: the first of the size that stays.
  void note_workspace(const Allocation& a) {
    if (!stays(a) || !is_workspace_size(a.requested_bytes)) return;
    const bool backward = roles_.of(a.stack) == StackRole::kBackward;
    if (!backward && roles_.of(a.stack) != StackRole::kForward) return;
    if (with_workspace_.emplace(a.stream, a.pool, backward).second) workspaces_.insert(a.birth);
  }

  // In a program without gradients: what outlives its pass, and the lines of the model from which
  // several blocks of one pass do.
  void survey_passes() {
    std::unordered_map<uint32_t, std::pair<size_t, uint32_t>> in_pass;  // stack -> pass, blocks
    for (size_t i = 0; i < model_.allocations.size(); ++i) {
      model_.passed(i);
      const Allocation& a = model_.allocations[i];
      if (a.seeded || passes_in(a) == 0) continue;
      if (a.block_bytes > kSmallBytes) kept_sizes_.insert(a.requested_bytes);
      if (roles_.of(a.stack) != StackRole::kForward) continue;
      const size_t pass = pass_of(a);
      auto& [last, blocks] = in_pass[a.stack];
      blocks = last == pass ? blocks + 1 : 1;
      last = pass;
      if (blocks > 1) cache_stacks_.insert(a.stack);
    }
  }

  // A library's workspace is allocated under the line that needs it first, and stays: one block of
  // a stack that recurs in every step. A retained graph leaves one more block in each step.
  bool is_workspace(const Allocation& a) {
    if (workspaces_.contains(a.birth)) return true;
    if (steps_.count() < 2 || !outlives_step(a)) return false;
    if (roles_.of(a.stack) == StackRole::kBackward) {
      return !parameter_sizes_.empty() && !parameter_sizes_.contains(a.requested_bytes);
    }
    return survivors_[a.stack] == 1;
  }

  // The number of passes begun when it was allocated.
  size_t pass_of(const Allocation& a) const {
    const auto next = std::upper_bound(passes_.begin(), passes_.end(), a.birth);
    return static_cast<size_t>(next - passes_.begin());
  }

  // Forward passes that begin while it is alive.
  size_t passes_in(const Allocation& a) const {
    const auto first = std::upper_bound(passes_.begin(), passes_.end(), a.birth);
    return static_cast<size_t>(std::lower_bound(first, passes_.end(), a.release) - first);
  }

  // Keys and values live from one token to the next: in a program without gradients, several blocks
  // of one line of the model outlive their pass, or a block outlives several passes of a request.
  bool is_kv_cache(const Allocation& a) const {
    if (out_.has_backward) return false;
    if (a.stack < of_cache_.size() && of_cache_[a.stack]) return is_kept_long(a);
    const uint32_t requests = std::max<uint32_t>(steps_.count(), 1);
    if (passes_.size() < size_t{3} * requests) return false;
    if (roles_.of(a.stack) == StackRole::kUser) {
      const bool weight = stays(a) && a.birth < passes_.front();
      return !weight && a.block_bytes > kSmallBytes && passes_in(a) >= 3;
    }
    // No pass follows the last token of a request.
    return cache_stacks_.contains(a.stack) && meets(a, pass_end_);
  }

  // Under autocast, 16-bit copies of the weights live until its end, with a graph or without.
  bool is_weight_copy(const Allocation& a) const {
    return parameter_sizes_.contains(a.requested_bytes * 2);
  }

  static bool is_older(const Allocation& a) { return a.seeded && a.stack == 0; }
  static bool stays(const Allocation& a) { return a.release == kNever; }
  static bool meets(const Allocation& a, uint32_t event) {
    return event != kNever && event < a.release;
  }
  // Still alive at the end of the following step: a loop variable lives into the next step.
  bool outlives_step(const Allocation& a) const {
    if (steps_.count() == 0) return a.release == kNever;
    const uint32_t end = steps_.end_of_step(a.birth);
    const uint32_t next = end == kNever ? kNever : steps_.end_of_step(end);
    return next != kNever && a.release > next;
  }
  // Allocations during its lifetime: they are in the order of birth, and each has about three
  // events.
  bool is_kept_long(const Allocation& a) const {
    return a.release == kNever || a.release - a.birth > 3 * kKeptBirths;
  }

  // What is left to be found among the blocks of one size that are older than the history.
  struct Copies {
    uint64_t parameters = 0;
    uint64_t states = 0;
    uint64_t all = 0;
  };

  // What was there before and stays is most likely the model: a block of the size of each gradient,
  // the optimizer's states of the same sizes, and what the program keeps ever more of. Parameters
  // are allocated first, at lower addresses; libraries take their workspaces later.
  void sort_older(bool use_recorded) {
    if (model_.recorded_events == 0) return;  // without a history nothing is known to stay
    std::vector<uint32_t> older;
    for (uint32_t i = 0; i < model_.allocations.size() && model_.allocations.seeded(i); ++i) {
      const Allocation& a = model_.allocations[i];
      if (!is_older(a) || (use_recorded && a.category != Category::kUnknown)) continue;
      older.push_back(i);
    }
    take_workspaces(older);
    std::unordered_map<uint64_t, Copies> sizes = copies_of(older);
    if (!flat_gradients_.empty()) return share_out(older);
    const std::unordered_map<uint64_t, Category> growing = sizes_that_grow();
    for (const uint32_t i : older) {
      const Allocation& a = model_.allocations[i];
      Guess guess{Category::kParameter, 5};
      const auto it = sizes.find(a.requested_bytes);
      const auto grown = growing.find(a.requested_bytes);
      if (!stays(a)) {
        guess = {};
        if (gradients_.contains(a.requested_bytes)) guess = {Category::kGradient, 4};
        if (cache_sizes_.contains(a.requested_bytes)) guess = {Category::kKvCache, 4};
      } else if (it != sizes.end() && it->second.parameters != 0) {
        --it->second.parameters;
      } else if (it != sizes.end() && it->second.states != 0) {
        --it->second.states;
        guess = {Category::kOptimizerState, 5};
      } else if (it != sizes.end()) {
        guess = {};
      } else if (grown != growing.end()) {
        guess = {grown->second, 4};
      } else if (cache_sizes_.contains(a.requested_bytes)) {
        guess = {Category::kKvCache, 4};  // of an earlier request
      } else if (kept_sizes_.contains(a.requested_bytes)) {
        guess = {};  // an earlier result
      }
      out_.of[i] = guess.category;
      out_.confidence[i] = guess.confidence;
    }
  }

  // Each thread that multiplies has one: the main thread and, in training, autograd's.
  void take_workspaces(std::vector<uint32_t>& older) {
    constexpr uint64_t kOfCublasLt = 1 << 20;
    const uint32_t threads = out_.has_backward ? 2 : 1;
    const auto of_its_size = std::count_if(older.begin(), older.end(), [&](uint32_t i) {
      return model_.allocations.requested_bytes(i) == kOfCublasLt;
    });
    std::unordered_map<uint64_t, uint32_t> taken;
    for (size_t k = older.size(); k-- > 0;) {
      const Allocation& a = model_.allocations[older[k]];
      const bool fits = is_workspace_size(a.requested_bytes) ||
                        (a.requested_bytes == kOfCublasLt &&
                         (!gradients_.empty() || of_its_size == 1));
      if (!fits || !stays(a) || gradients_.contains(a.requested_bytes)) continue;
      if (++taken[a.requested_bytes] > threads) continue;
      out_.of[older[k]] = Category::kWorkspace;
      out_.confidence[older[k]] = 5;
      older.erase(older.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }

  // For each size of a gradient: there are as many parameters as gradients at once.
  std::unordered_map<uint64_t, Copies> copies_of(const std::vector<uint32_t>& older) const {
    std::unordered_map<uint64_t, Copies> sizes;
    uint64_t parameters = 0;
    for (const auto& [size, known] : gradients_) {
      // While gradients are accumulated, those that are added are gone when the program goes on.
      const auto& rows = out_.has_optimizer || known.held.empty() ? known.all : known.held;
      parameters += sizes[size].parameters = most_alive(rows, [](const Allocation&) { return 1; });
    }
    uint64_t parameter_bytes = 0;
    uint64_t other_bytes = 0;
    uint64_t scalars = 0;
    for (const uint32_t i : older) {
      const Allocation& a = model_.allocations[i];
      if (stays(a) && a.requested_bytes == sizeof(float)) ++scalars;
      const auto it = stays(a) ? sizes.find(a.requested_bytes) : sizes.end();
      if (it == sizes.end()) continue;
      (it->second.all++ < it->second.parameters ? parameter_bytes : other_bytes) += a.block_bytes;
    }
    // An optimizer that allocates nothing in its step is fused. Adam's counts steps on the card.
    const bool counts_steps = 2 * scalars >= parameters;
    const uint64_t each = states_for_each(parameter_bytes, other_bytes, counts_steps ? 2 : 1);
    for (auto& [size, copies] : sizes) copies.states = copies.parameters * each;
    return sizes;
  }

  // At most `most` where the optimizer is not known.
  uint64_t states_for_each(uint64_t parameter_bytes, uint64_t other_bytes, uint64_t most) const {
    if (parameter_bytes == 0) return 0;
    return states_per_parameter(process_).value_or(
        std::min(most, (other_bytes + parameter_bytes / 4) / parameter_bytes));
  }

  // The most that blocks weigh together at any time.
  template <typename Weight>
  uint64_t most_alive(const std::vector<uint32_t>& blocks, Weight&& weight) const {
    std::vector<std::pair<uint32_t, int64_t>> edges;
    for (const uint32_t i : blocks) {
      const Allocation& a = model_.allocations[i];
      edges.emplace_back(a.birth, static_cast<int64_t>(weight(a)));
      edges.emplace_back(a.release, -static_cast<int64_t>(weight(a)));
    }
    std::sort(edges.begin(), edges.end());
    int64_t alive = 0;
    int64_t most = 0;
    for (const auto& [event, change] : edges) most = std::max(most, alive += change);
    return static_cast<uint64_t>(most);
  }

  // FSDP reduces the gradients of many parameters as one block, so their sizes are not the
  // parameters'. Of each size, one block in `share` is a parameter, and the others are its states.
  void share_out(const std::vector<uint32_t>& older) {
    std::unordered_map<uint64_t, std::vector<uint32_t>> by_size;
    for (const uint32_t i : older) {
      const Allocation& a = model_.allocations[i];
      if (stays(a)) by_size[a.requested_bytes].push_back(i);
    }
    const uint64_t share = copies_of_each(by_size);
    for (const auto& [size, blocks] : by_size) {
      const uint64_t parameters = (blocks.size() + share / 2) / share;
      for (size_t k = 0; k < blocks.size(); ++k) {
        out_.of[blocks[k]] = k < parameters ? Category::kParameter : Category::kOptimizerState;
        out_.confidence[blocks[k]] = 4;
      }
    }
  }

  // A parameter and its states: as many blocks of each size as divide their number, and of the bytes
  // that the gradients have.
  uint64_t copies_of_each(
      const std::unordered_map<uint64_t, std::vector<uint32_t>>& by_size) const {
    if (const auto states = states_per_parameter(process_)) return 1 + *states;
    const uint64_t gradients =
        most_alive(flat_gradients_, [](const Allocation& a) { return a.block_bytes; });
    uint64_t best = 1;
    uint64_t error = UINT64_MAX;
    for (const uint64_t copies : {1U, 2U, 3U}) {
      uint64_t all = 0;
      uint64_t odd = 0;
      for (const auto& [size, blocks] : by_size) {
        all += size * blocks.size();
        odd += size * (blocks.size() % copies);
      }
      const uint64_t each = all / copies;
      const uint64_t off = each > gradients ? each - gradients : gradients - each;
      if (odd > all / 20 || off >= error) continue;
      error = off;
      best = copies;
    }
    return best;
  }

  std::unordered_map<uint64_t, Category> sizes_that_grow() const {
    std::unordered_set<uint32_t> stacks;
    for (const StackGrowth& g : steps_.growing) stacks.insert(g.stack);
    std::unordered_map<uint64_t, Category> sizes;
    for (uint32_t i = 0; i < model_.allocations.size(); ++i) {
      const Allocation& a = model_.allocations[i];
      if (!a.seeded && stays(a) && stacks.contains(a.stack)) sizes[a.requested_bytes] = out_.of[i];
    }
    return sizes;
  }

  Guess guess_of(const Allocation& a) {
    switch (roles_.of(a.stack)) {
      case StackRole::kForward:
        return forward(a);
      case StackRole::kBackward:
        return backward(a);
      case StackRole::kOptimizerInit:
        return {Category::kOptimizerState, 9};
      case StackRole::kOptimizer:
        return meets(a, next_forward_) || (a.release == kNever && model_.failures.empty())
                   ? Guess{Category::kOptimizerState, 8}
                   : Guess{Category::kTemporary, 8};
      case StackRole::kModuleSetUp:
        return is_kept_long(a) || meets(a, next_forward_) ? Guess{Category::kParameter, 8}
                                                          : Guess{Category::kTemporary, 6};
      case StackRole::kData:
        return {Category::kInput, 8};
      case StackRole::kCommunication:
        return {Category::kCommunication, 7};
      case StackRole::kLoading:
        return loading(a);
      case StackRole::kUser:
      case StackRole::kSaving:
        return user(a);
      case StackRole::kNone:
        break;
    }
    return {};
  }

  Guess forward(const Allocation& a) {
    if (is_workspace(a)) return {Category::kWorkspace, 6};
    if (is_kv_cache(a)) return {Category::kKvCache, 6};
    if (meets(a, next_backward_)) return {Category::kActivation, 9};
    if (!is_kept_long(a)) return {Category::kTemporary, 7};
    // A forward pass that ended with an error could not run its backward pass.
    kept_without_backward_ = a.release != kNever && !meets(a, next_failure_) &&
                             meets(a, pass_end_) && !is_weight_copy(a);
    return {Category::kActivation, 5};
  }

  Guess backward(const Allocation& a) {
    if (is_workspace(a)) return {Category::kWorkspace, 6};
    if (out_.has_optimizer) {
      return meets(a, next_optimizer_) ? Guess{Category::kGradient, 9}
                                       : Guess{Category::kTemporary, 8};
    }
    if (meets(a, next_other_)) return {Category::kGradient, 6};
    // An optimizer that allocates nothing is not seen: gradients may be freed before anything else,
    // but after what the last operation has used.
    const bool kept = meets(a, backward_end_) && a.release - backward_end_ > kLastFrees;
    return kept ? Guess{Category::kGradient, 5} : Guess{Category::kTemporary, 6};
  }

  // What is read from a file is the model, unless the model has such a block already, perhaps in
  // another precision.
  Guess loading(const Allocation& a) const {
    const uint64_t bytes = a.requested_bytes;
    if (!stays(a) || parameter_sizes_.contains(bytes) || parameter_sizes_.contains(bytes / 2) ||
        parameter_sizes_.contains(bytes * 2)) {
      return user(a);
    }
    return {Category::kParameter, 6};
  }

  // The program's own lines: allocations that feed a forward pass are input, those after it are
  // loss.
  Guess user(const Allocation& a) const {
    if (is_kv_cache(a)) return {Category::kKvCache, 6};
    const bool feeds = meets(a, next_forward_) && next_forward_ < next_backward_;
    if (feeds && !outlives_step(a)) return {Category::kInput, 7};
    if (meets(a, next_backward_) && !outlives_step(a)) return {Category::kActivation, 7};
    if (!is_kept_long(a)) return {Category::kTemporary, 5};
    return {};
  }

  // A graph is many blocks of several operations at once; a list of outputs is not one.
  void keep_only_graphs() {
    std::vector<uint32_t>& kept = out_.kept_without_backward;
    if (!out_.has_backward) kept.clear();
    std::vector<std::pair<uint32_t, int>> edges;
    for (const uint32_t i : kept) {
      edges.emplace_back(model_.allocations[i].birth, 1);
      edges.emplace_back(model_.allocations[i].release, -1);
    }
    std::sort(edges.begin(), edges.end());
    int64_t alive = 0;
    int64_t most = 0;
    uint32_t when = 0;
    for (const auto& [event, step] : edges) {
      alive += step;
      if (alive > most) when = event;
      most = std::max(most, alive);
    }
    std::unordered_set<uint32_t> stacks;
    for (const uint32_t i : kept) {
      if (model_.allocations[i].alive_at(when)) stacks.insert(model_.allocations[i].stack);
    }
    if (most < kGraphBlocks || stacks.size() < kGraphStacks) {
      kept.clear();
      return;
    }
    // The last layers' blocks are short-lived but belong to the same graph.
    for (uint32_t i = 0; i < model_.allocations.size(); ++i) {
      const Allocation& a = model_.allocations[i];
      if (out_.of[i] != Category::kTemporary || !stacks.contains(a.stack)) continue;
      kept.push_back(i);
      out_.of[i] = Category::kActivation;
      out_.confidence[i] = 5;
    }
    std::sort(kept.begin(), kept.end());
  }

  const ProcessModel& process_;
  const AllocationHistory& model_;
  const StackRoles& roles_;
  const Steps& steps_;
  const std::vector<bool> of_cache_;  // by stack
  const std::vector<bool> of_fsdp_;
  std::vector<uint32_t> marks_;
  std::vector<uint32_t> passes_;                      // events at which a forward pass begins
  std::unordered_set<uint32_t> cache_stacks_;         // several blocks of a pass outlive it
  std::unordered_set<uint64_t> kept_sizes_;           // of what the program keeps
  struct Gradients {
    std::vector<uint32_t> all;
    std::vector<uint32_t> held;  // alive when something other than the backward pass allocates
  };
  std::unordered_map<uint64_t, Gradients> gradients_;  // by size
  std::unordered_set<uint64_t> cache_sizes_;
  std::vector<uint32_t> flat_gradients_;  // of FSDP
  Categories out_;
  std::set<std::tuple<uint64_t, uint32_t, bool>> with_workspace_;  // stream, pool, in backward
  std::unordered_set<uint32_t> workspaces_;                        // events of their births
  std::unordered_map<uint32_t, uint32_t> survivors_;  // stack -> blocks that outlived their step
  std::unordered_set<uint64_t> parameter_sizes_;
  uint32_t next_forward_ = kNever;
  uint32_t next_backward_ = kNever;
  uint32_t next_optimizer_ = kNever;
  uint32_t next_other_ = kNever;
  uint32_t next_failure_ = kNever;
  size_t failures_ = model_.failures.size();  // those not yet visited
  bool kept_without_backward_ = false;
  StackRole role_before_ = StackRole::kNone;  // of the allocation visited before
  uint32_t pass_end_ = kNever;                // the last allocation of the forward pass
  uint32_t backward_end_ = kNever;            // of the backward pass
};

}  // namespace

Categories categorize(const ProcessModel& process, const AllocationHistory& model,
                      const StackRoles& roles, const Steps& steps, bool use_recorded) {
  return Categorizer(process, model, roles, steps).run(use_recorded);
}

void infer_categories(TraceModel& trace) {
  for (ProcessModel& process : trace.processes) {
    if (process.framework.empty()) continue;
    const StackRoles roles(process);
    for (AllocationHistory& model : process.framework) {
      const Categories found = categorize(process, model, roles, find_steps(process, model, roles));
      for (size_t i = 0; i < found.of.size(); ++i) model.allocations.set_category(i, found.of[i]);
    }
  }
}

}  // namespace tidemark
