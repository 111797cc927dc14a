#include "analysis/insight/categories/older_blocks.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "analysis/insight/categories/older_gradients.h"
#include "analysis/insight/lives/block_life.h"

namespace tidemark {

namespace {

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

class OlderBlocks {
 public:
  OlderBlocks(const ProcessModel& process, const AllocationHistory& model, const StackRoles& roles,
              const Steps& steps, const KnownSizes& known, Categories& out)
      : process_(process), model_(model), roles_(roles), steps_(steps), known_(known), out_(out) {
    if (!model.allocations.empty()) {
      last_birth_ = model.allocations.birth(model.allocations.size() - 1);
    }
  }

  // What was there before and stays is most likely the model: a block of the size of each gradient,
  // the optimizer's states of the same sizes, and what the program keeps ever more of. Parameters
  // are allocated first, at lower addresses; libraries take their workspaces later.
  void run(bool use_recorded) {
    if (model_.recorded_events == 0) return;  // without a history nothing is known to stay
    std::vector<uint32_t> older;
    for (uint32_t i = 0; i < model_.allocations.size() && model_.allocations.seeded(i); ++i) {
      const Allocation& a = model_.allocations[i];
      if (!is_older(a) || (use_recorded && a.category != Category::kUnknown)) continue;
      older.push_back(i);
    }
    take_workspaces(older);
    if (!known_.flat_gradients.empty()) return share_out(older);
    for (const uint32_t i : known_.set_up) {
      if (!use_recorded || model_.allocations.category(i) == Category::kUnknown) older.push_back(i);
    }
    std::unordered_map<uint64_t, Copies> sizes = copies_of(older);
    take_older_gradients(older, sizes);
    if (known_.only_optimizes) take_gradients_of_step(older, sizes);
    const std::unordered_set<uint64_t> results = sizes_of_results(older);
    const std::unordered_map<uint64_t, Category> growing = sizes_that_grow();
    for (const uint32_t i : older) {
      const Allocation& a = model_.allocations[i];
      // What is freed at the end, and has the size of no gradient, may be anything.
      Guess guess = a.release == kNever ? Guess{Category::kParameter, 5} : Guess{};
      const auto it = sizes.find(a.asked_bytes());
      const auto grown = growing.find(a.asked_bytes());
      if (!stays(a)) {
        guess = {};
        if (known_.gradients.contains(a.asked_bytes())) guess = {Category::kGradient, 4};
        if (freed_by_optimizer(a)) guess = {Category::kOptimizerState, 4};
        if (freed_by_backward(a)) guess = {Category::kActivation, 4};
        if (known_.cache_sizes.contains(a.asked_bytes())) guess = {Category::kKvCache, 4};
      } else if (it != sizes.end() && it->second.parameters != 0) {
        --it->second.parameters;
        guess = {Category::kParameter, 5};
      } else if (it != sizes.end() && it->second.gradients != 0) {
        --it->second.gradients;
        guess = {Category::kGradient, 5};
      } else if (it != sizes.end() && it->second.states != 0) {
        --it->second.states;
        guess = {Category::kOptimizerState, 5};
      } else if (it != sizes.end() || (!is_older(a) && !known_.gradients.empty())) {
        guess = {};
      } else if (grown != growing.end()) {
        guess = {grown->second, 4};
      } else if (known_.cache_sizes.contains(a.asked_bytes())) {
        guess = {Category::kKvCache, 4};  // of an earlier request
      } else if (is_older(a) && (known_.kept_sizes.contains(a.asked_bytes()) ||
                                 results.contains(a.asked_bytes()))) {
        guess = {};  // an earlier result
      }
      set(i, guess);
    }
  }

 private:
  // To the end, or until the program frees all it has, after its last request. What constructors
  // made stays as long as the optimizer does not replace it.
  bool stays(const Allocation& a) const { return a.release > last_birth_ || !is_older(a); }

  // What is left to be found among the blocks of one size that are older than the history.
  struct Copies {
    uint64_t parameters = 0;
    uint64_t gradients = 0;
    uint64_t states = 0;
    uint64_t all = 0;
  };

  // Each thread that multiplies has one: the main thread and, in training, autograd's.
  void take_workspaces(std::vector<uint32_t>& older) {
    const uint32_t threads = out_.has_backward ? 2 : 1;
    const auto of_its_size = std::count_if(older.begin(), older.end(), [&](uint32_t i) {
      return model_.allocations.asked_bytes(i) == kOfCublasLt;
    });
    std::unordered_map<uint64_t, uint32_t> taken;
    for (size_t k = older.size(); k-- > 0;) {
      const Allocation& a = model_.allocations[older[k]];
      const uint64_t of_cublas = known_.workspace_bytes;
      const bool fits =
          (is_workspace_size(a.asked_bytes()) &&
           (of_cublas == 0 || of_cublas == a.asked_bytes())) ||
          (a.asked_bytes() == kOfCublasLt && (!known_.gradients.empty() || of_its_size == 1));
      if (!fits || !stays(a) || known_.gradients.contains(a.asked_bytes())) continue;
      if (++taken[a.asked_bytes()] > threads) continue;
      set(older[k], {Category::kWorkspace, 5});
      older.erase(older.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }

  // The first row allocated after a block is freed.
  size_t row_after(const Allocation& a) const {
    size_t next = 0;
    for (size_t end = model_.allocations.size(); next < end;) {
      const size_t middle = next + (end - next) / 2;
      if (model_.allocations.birth(middle) > a.release) {
        end = middle;
      } else {
        next = middle + 1;
      }
    }
    return next;
  }

  // What a pass that the history begins in the middle of, or before, had saved goes while its
  // backward pass runs.
  bool freed_by_backward(const Allocation& a) const {
    const size_t next = row_after(a);
    return next != model_.allocations.size() && !model_.allocations.seeded(next) &&
           roles_.of(model_.allocations.stack(next)) == StackRole::kBackward;
  }

  // A state that is replaced in each step goes while the optimizer runs; gradients go later.
  bool freed_by_optimizer(const Allocation& a) const {
    const size_t next = row_after(a);
    if (next == 0 || next == model_.allocations.size()) return false;
    const StackRole role = roles_.of(model_.allocations.stack(next));
    if (role != StackRole::kOptimizer && role != StackRole::kOptimizerInit) return false;
    // The end of a backward pass frees its last activations.
    return roles_.of(model_.allocations.stack(next - 1)) != StackRole::kBackward;
  }

  // For each size of a gradient: there are as many parameters as gradients at once.
  std::unordered_map<uint64_t, Copies> copies_of(const std::vector<uint32_t>& older) const {
    std::unordered_map<uint64_t, Copies> sizes;
    uint64_t parameters = 0;
    for (const auto& [size, of_size] : known_.gradients) {
      // While gradients are accumulated, those that are added are gone when the program goes on.
      const auto& rows = out_.has_optimizer || of_size.held.empty() ? of_size.all : of_size.held;
      parameters += sizes[size].parameters = most_alive(rows, [](const Allocation&) { return 1; });
    }
    if (!known_.set_up.empty()) leave_out_known(sizes);
    uint64_t parameter_bytes = 0;
    uint64_t other_bytes = 0;
    uint64_t scalars = 0;
    for (const uint32_t i : older) {
      const Allocation& a = model_.allocations[i];
      if (stays(a) && a.asked_bytes() == sizeof(float)) ++scalars;
      const auto it = stays(a) ? sizes.find(a.asked_bytes()) : sizes.end();
      if (it == sizes.end()) continue;
      (it->second.all++ < it->second.parameters ? parameter_bytes : other_bytes) += a.block_bytes;
    }
    // An optimizer that allocates nothing in its step is fused. Adam's counts steps on the card.
    const bool counts_steps = 2 * scalars >= parameters;
    const uint64_t each = 2 * bytes_made_of(Category::kOptimizerState) > parameter_bytes
                              ? 0
                              : states_for_each(parameter_bytes, other_bytes, counts_steps ? 2 : 1);
    for (auto& [size, copies] : sizes) copies.states = copies.parameters * each;
    return sizes;
  }

  // Of blocks whose stacks tell, which are no older ones.
  uint64_t bytes_made_of(Category category) const {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < model_.allocations.size(); ++i) {
      const Allocation& a = model_.allocations[i];
      if (!is_older(a) && stays(a) && out_.of[i] == category) bytes += a.block_bytes;
    }
    return bytes;
  }

  // The blocks of each size are shared out among parameters, gradients and states.
  void take_older_gradients(const std::vector<uint32_t>& older,
                            std::unordered_map<uint64_t, Copies>& sizes) const {
    const uint64_t sets = sets_with_gradients(model_, roles_, older);
    // With the two states of Adam, three are complete without gradients: the optimizer runs within
    // the backward pass.
    if (sets == 0 || (sets == 3 && states_per_parameter(process_) == 2)) return;
    std::unordered_map<uint64_t, uint64_t> counts;
    for (const uint32_t i : older) {
      const Allocation& a = model_.allocations[i];
      if (a.release == kNever) ++counts[a.asked_bytes()];
    }
    for (const auto& [size, count] : counts) {
      const uint64_t parameters = count / sets;
      const uint64_t states = known_.may_have_states ? count - 2 * parameters : 0;
      if (count % sets == 0) sizes[size] = {parameters, parameters, states, count};
    }
  }

  // An optimizer that steps alone has a gradient for each parameter, and its states, unless it
  // replaces them.
  void take_gradients_of_step(const std::vector<uint32_t>& older,
                              std::unordered_map<uint64_t, Copies>& sizes) const {
    std::unordered_map<uint64_t, uint64_t> counts;
    uint64_t bytes = 0;
    uint64_t replaced = 0;
    for (const uint32_t i : older) {
      const Allocation& a = model_.allocations[i];
      if (stays(a)) {
        ++counts[a.asked_bytes()];
        bytes += a.asked_bytes();
      } else if (freed_by_optimizer(a)) {
        replaced += a.asked_bytes();
      }
    }
    const std::optional<uint64_t> states = states_per_parameter(process_);
    const bool replaces = 2 * replaced > bytes;
    if (!replaces && !states) return;
    // Those whose stacks are known are not among these.
    if (10 * bytes_made_of(Category::kGradient) > bytes) return;
    const uint64_t sets = 2 + (replaces ? 0 : *states);
    uint64_t odd = 0;
    for (const auto& [size, count] : counts) odd += size * (count % sets);
    if (odd > bytes / 10) return;
    for (const auto& [size, count] : counts) {
      const uint64_t each = count / sets;
      if (each != 0) sizes[size] = {each, each, (sets - 2) * each, count};
    }
  }

  // Of which the forward pass has results, and of which there is a block or two, as of a result
  // that a variable still holds. Weights of layers have sizes of their own, or are many.
  std::unordered_set<uint64_t> sizes_of_results(const std::vector<uint32_t>& older) const {
    constexpr size_t kMost = 2;
    std::unordered_map<uint64_t, size_t> counts;
    for (const uint32_t i : older) {
      const Allocation& a = model_.allocations[i];
      if (stays(a) && known_.result_sizes.contains(a.asked_bytes())) ++counts[a.asked_bytes()];
    }
    std::unordered_set<uint64_t> sizes;
    for (const auto& [size, count] : counts) {
      if (count <= kMost && !known_.gradients.contains(size)) sizes.insert(size);
    }
    return sizes;
  }

  // Parameters that modules of torch.nn made are known.
  void leave_out_known(std::unordered_map<uint64_t, Copies>& sizes) const {
    for (uint32_t i = 0; i < model_.allocations.size(); ++i) {
      if (out_.of[i] != Category::kParameter || model_.allocations.release(i) != kNever) continue;
      const auto it = sizes.find(model_.allocations.asked_bytes(i));
      if (it != sizes.end() && it->second.parameters != 0) --it->second.parameters;
    }
  }

  // At most `most` where the optimizer is not known.
  uint64_t states_for_each(uint64_t parameter_bytes, uint64_t other_bytes, uint64_t most) const {
    if (parameter_bytes == 0 || !known_.may_have_states) return 0;
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

  using BySize = std::unordered_map<uint64_t, std::vector<uint32_t>>;

  // FSDP reduces the gradients of many parameters as one block, so their sizes are not the
  // parameters'. Of each size, one block in `share` is a parameter, and the others are its states.
  void share_out(const std::vector<uint32_t>& older) {
    BySize by_size;
    for (const uint32_t i : older) {
      const Allocation& a = model_.allocations[i];
      if (stays(a)) by_size[a.asked_bytes()].push_back(i);
    }
    const uint64_t ranks = ranks_of(by_size);
    if (ranks != 0) leave_out_results(ranks, by_size);
    const uint64_t gradients = flat_gradient_bytes(ranks);
    const uint64_t share = copies_of_each(by_size, gradients);
    const std::unordered_map<uint64_t, Category> growing = sizes_that_grow();
    const double part = part_of_model(by_size, growing, share * gradients);
    for (const auto& [size, blocks] : by_size) {
      const auto grown = growing.find(size);
      const double of_model =
          static_cast<double>(blocks.size()) * (grown != growing.end() ? part : 1);
      const auto parameters = static_cast<size_t>(of_model / static_cast<double>(share) + 0.5);
      const size_t all = part < 1 && grown != growing.end() ? parameters * share : blocks.size();
      for (size_t k = 0; k < blocks.size(); ++k) {
        Guess guess{k < parameters ? Category::kParameter : Category::kOptimizerState, 4};
        if (k >= all) guess.category = grown->second;
        set(blocks[k], guess);
      }
    }
  }

  // A parameter is gathered from as many shards as there are ranks; 0 if that does not show.
  uint64_t ranks_of(const BySize& by_size) const {
    std::unordered_map<uint64_t, size_t> votes;
    for (const auto& [size, blocks] : by_size) {
      for (const uint64_t whole : known_.gathered_sizes) {
        if (size != 0 && whole % size == 0) ++votes[whole / size];
      }
    }
    const auto most = std::max_element(votes.begin(), votes.end(), [](auto& one, auto& other) {
      return std::pair(one.second, other.first) < std::pair(other.second, one.first);
    });
    return most == votes.end() || most->second * 2 < by_size.size() ? 0 : most->first;
  }

  // What the program keeps is no shard if it has another size.
  void leave_out_results(uint64_t ranks, BySize& by_size) {
    std::erase_if(by_size, [&](const auto& item) {
      const auto& [size, blocks] = item;
      if (known_.gathered_sizes.contains(size * ranks) || !known_.kept_sizes.contains(size)) {
        return false;
      }
      for (const uint32_t i : blocks) set(i, {});
      return true;
    });
  }

  // Without those that are still to be reduced: they have the parts of all ranks.
  uint64_t flat_gradient_bytes(uint64_t ranks) const {
    std::unordered_set<uint64_t> sizes;
    const auto bytes = [&](uint32_t i) { return model_.allocations.asked_bytes(i); };
    for (const uint32_t i : known_.flat_gradients) sizes.insert(bytes(i));
    std::vector<uint32_t> reduced;
    for (const uint32_t i : known_.flat_gradients) {
      const bool whole = ranks > 1 && bytes(i) % ranks == 0 && sizes.contains(bytes(i) / ranks);
      if (!whole) reduced.push_back(i);
    }
    return most_alive(reduced, [](const Allocation& a) { return a.block_bytes; });
  }

  // Copies of the model, of which the program keeps ever more, have the sizes of its parameters:
  // how much of the blocks in growing sizes is the model itself.
  static double part_of_model(const BySize& by_size,
                              const std::unordered_map<uint64_t, Category>& growing,
                              uint64_t model_bytes) {
    uint64_t steady = 0;
    uint64_t grown = 0;
    for (const auto& [size, blocks] : by_size) {
      (growing.contains(size) ? grown : steady) += size * blocks.size();
    }
    if (grown == 0 || steady + grown <= model_bytes + model_bytes / 4) return 1;
    const uint64_t left = model_bytes - std::min(model_bytes, steady);
    return static_cast<double>(left) / static_cast<double>(grown);
  }

  // A parameter and its states: as many blocks of each size as divide their number, and of the
  // bytes that the gradients have.
  uint64_t copies_of_each(const BySize& by_size, uint64_t gradients) const {
    if (const auto states = states_per_parameter(process_)) return 1 + *states;
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
    if (stacks.empty()) return sizes;
    for (uint32_t i = 0; i < model_.allocations.size(); ++i) {
      const Allocation& a = model_.allocations[i];
      if (!a.seeded && stays(a) && stacks.contains(a.stack)) sizes[a.asked_bytes()] = out_.of[i];
    }
    return sizes;
  }

  void set(uint32_t i, Guess guess) {
    out_.of[i] = guess.category;
    out_.confidence[i] = guess.confidence;
  }

  const ProcessModel& process_;
  const AllocationHistory& model_;
  const StackRoles& roles_;
  const Steps& steps_;
  const KnownSizes& known_;
  Categories& out_;
  uint32_t last_birth_ = 0;  // event
};

}  // namespace

void sort_older_blocks(const ProcessModel& process, const AllocationHistory& model,
                       const StackRoles& roles, const Steps& steps, const KnownSizes& known,
                       bool use_recorded, Categories& out) {
  OlderBlocks(process, model, roles, steps, known, out).run(use_recorded);
}

}  // namespace tidemark
