#include "analysis/plan/program/program.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <utility>

#include "analysis/insight/lives/stacks_through.h"
#include "analysis/load/number_width.h"
#include "analysis/names/module_stacks.h"

namespace tidemark {

namespace {

// Functions of the program that have the names of those of torch.nn.functional.
std::vector<bool> attention_stacks(const Dictionary& names) {
  return stacks_with(names, [&](const Frame& frame) {
    const std::string_view function = names.string(frame.function);
    const std::string_view name = function.substr(function.rfind('.') + 1);  // npos + 1 is 0
    return (name == "softmax" || name == "scaled_dot_product_attention") &&
           frame.kind == FrameKind::kPython &&
           names.string(frame.file).find("torch/nn/") == std::string_view::npos;
  });
}

}  // namespace

RecordedProgram::RecordedProgram(const ProcessModel& process, const AllocationHistory& model)
    : process_(process),
      model_(model),
      roles_(process),
      places_(process.names, model.allocations),
      attends_(attention_stacks(process.names)),
      steps_(find_steps(process, model, roles_)),
      categories_(categorize(process, model, roles_, steps_)) {
  find_parts();
}

RecordedProgram::RecordedProgram(const ProcessModel& process, const AllocationHistory& model,
                                 const StackRoles& roles, Steps steps, Categories categories)
    : process_(process),
      model_(model),
      roles_(roles),
      places_(process.names, model.allocations),
      attends_(attention_stacks(process.names)),
      steps_(std::move(steps)),
      categories_(std::move(categories)) {
  find_parts();
}

void RecordedProgram::find_parts() {
  if (categories_.has_backward) passes_ = find_backward_passes(process_.names, model_, roles_);
  if (!passes_.empty()) {
    evaluations_ = find_phases(process_, model_, roles_, steps_);
    std::erase_if(evaluations_, [](const Phase& phase) {
      return phase.kind != PhaseKind::kValidation && phase.kind != PhaseKind::kGeneration;
    });
  }
  batch_parts_ = find_batch_parts(process_, model_, roles_, steps_, categories_, passes_);
  std::set<uint64_t> sizes;
  for (size_t i = 0; i < rows(); ++i) {
    bytes_.push_back(model_.allocations.asked_bytes(i));
    if (category(i) == Category::kParameter) sizes.insert(bytes_.back());
  }
  parameter_sizes_.assign(sizes.begin(), sizes.end());
  find_calls();
  find_own_weights();
  find_own_states();
  find_full_caches();
  find_runs();
  find_modules();
  find_autocast();
  find_accumulation();
}

std::vector<uint32_t> RecordedProgram::gradients() const {
  std::vector<uint32_t> older;
  std::vector<uint32_t> made;
  uint64_t older_bytes = 0;
  uint64_t made_bytes = 0;
  for (uint32_t i = 0; i < rows(); ++i) {
    if (category(i) != Category::kGradient) continue;
    const Allocation& a = model_.allocations[i];
    if (a.seeded && a.release == kNever) {
      older.push_back(i);
      older_bytes += bytes(i);
    } else if (!passes_.empty() && a.birth >= passes_.front().first &&
               a.birth < passes_.front().end) {
      made.push_back(i);
      made_bytes += bytes(i);
    }
  }
  return older_bytes > made_bytes ? older : made;
}

bool RecordedProgram::is_parameter_size(uint64_t bytes) const {
  return std::binary_search(parameter_sizes_.begin(), parameter_sizes_.end(), bytes);
}

bool RecordedProgram::outlives_steps(size_t row) const {
  constexpr size_t kSeveral = 3;
  const uint32_t birth = model_.allocations.birth(row);
  const uint32_t release = model_.allocations.release(row);
  if (!passes_.empty()) {
    return passes_.size() >= kSeveral && birth < passes_.front().first &&
           release > passes_.back().first;
  }
  return call_events_.size() >= kSeveral && birth < first_forward_ && release > last_forward_;
}

bool RecordedProgram::is_pool(size_t row) const {
  constexpr size_t kManySizes = 4;  // a prompt and its tokens have two
  const AllocationColumns& all = model_.allocations;
  return call_sizes_.size() >= kManySizes && all.birth(row) < first_forward_ &&
         all.release(row) > last_forward_;
}

void RecordedProgram::find_calls() {
  uint32_t first_stack = 0;
  // Functions of torch.nn outside of any module may prepare data.
  const std::vector<bool> of_modules = module_stacks(process_.names);
  const auto in_module = [&](size_t row) {
    const uint32_t stack = model_.allocations.stack(row);
    return stack < of_modules.size() && (of_modules[stack] || attends(stack));
  };
  bool modules = false;
  for (size_t i = 0; i < rows() && !modules; ++i) {
    modules = role(i) == StackRole::kForward && in_module(i);
  }
  for (size_t i = 0; i < rows(); ++i) {
    if (role(i) != StackRole::kForward || model_.allocations.seeded(i)) continue;
    if (modules && !in_module(i)) continue;
    last_forward_ = model_.allocations.birth(i);
    if (first_forward_ == kNever) {
      first_forward_ = last_forward_;
      first_stack = model_.allocations.stack(i);
    }
    if (model_.allocations.stack(i) != first_stack) continue;
    call_events_.push_back(last_forward_);
    call_sizes_.insert(bytes(i));
  }
}

// A line of the program that makes blocks of many sizes before the first call of a model makes
// weights, such as packed ones, which are no parameters. Caches and data have one size or two.
void RecordedProgram::find_own_weights() {
  constexpr size_t kSizesOfModel = 3;
  own_weights_.assign(rows(), false);
  if (!passes_.empty() || first_forward_ == kNever) return;
  const auto may_be = [&](size_t row) {
    return !model_.allocations.seeded(row) && bytes_[row] > kSmallBytes &&
           model_.allocations.birth(row) < first_forward_ && role(row) == StackRole::kUser;
  };
  const auto line_of = [&](size_t row) {
    return process_.names.stack(model_.allocations.stack(row)).frame;
  };
  std::map<uint32_t, std::set<uint64_t>> sizes;  // by line
  for (size_t i = 0; i < rows(); ++i) {
    if (may_be(i)) sizes[line_of(i)].insert(bytes_[i]);
  }
  for (size_t i = 0; i < rows(); ++i) {
    if (!may_be(i) || !outlives_steps(i) || sizes[line_of(i)].size() < kSizesOfModel) continue;
    own_weights_[i] = true;
    own_weight_sizes_.insert(bytes_[i]);
  }
}

// What is made for a batch is made for each one, and an object that fetches batches does so in
// other functions than the one that sets it up.
void RecordedProgram::find_own_states() {
  own_states_.assign(rows(), false);
  if (passes_.empty() || first_forward_ == kNever) return;
  const std::vector<bool> sets_up = stacks_through(
      process_.names,
      [](std::string_view function, std::string_view) { return function.ends_with("__init__"); });
  const AllocationColumns& all = model_.allocations;
  std::unordered_set<uint64_t> gradients;
  std::unordered_set<uint32_t> again;  // stacks that allocate later, too
  for (size_t i = 0; i < rows(); ++i) {
    if (category(i) == Category::kGradient) gradients.insert(bytes_[i]);
    if (all.birth(i) >= first_forward_) again.insert(all.stack(i));
  }
  for (size_t i = 0; i < rows(); ++i) {
    const uint32_t stack = all.stack(i);
    const bool kept = all.birth(i) < first_forward_ && all.release(i) > passes_.front().last;
    if (!kept || all.seeded(i) || again.contains(stack)) continue;
    own_states_[i] = (stack < sets_up.size() && sets_up[stack]) || gradients.contains(bytes_[i]);
  }
}

// Of one byte per number, of two or of four; packed ones have two or more numbers in a byte.
bool RecordedProgram::unpacks_weights(size_t row) const {
  constexpr std::array<uint64_t, 4> kTimes = {1, 2, 4, 8};
  return role(row) == StackRole::kForward &&
         std::any_of(kTimes.begin(), kTimes.end(), [&](uint64_t times) {
           return bytes_[row] % times == 0 && own_weight_sizes_.contains(bytes_[row] / times);
         });
}

namespace {

// What a line holds over several calls of a model: the level of its bytes, event by event.
struct HeldLevel {
  std::vector<std::pair<uint32_t, int64_t>> changes;  // events, and bytes that come or go
  std::vector<size_t> rows;

  // Whether the level rose to its limit and stayed there while blocks came and went: old entries
  // make room for new ones.
  bool is_full_cache(uint32_t end) {
    constexpr size_t kSeveral = 3;
    std::sort(changes.begin(), changes.end());
    int64_t most = 0;
    int64_t level = 0;
    for (const auto& [event, bytes] : changes) most = std::max(most, level += bytes);
    int64_t least = most;
    size_t came = 0;  // since it is full
    size_t went = 0;
    level = 0;
    for (const auto& [event, bytes] : changes) {
      if (event > end) break;
      level += bytes;
      if (came == 0 && level < most / 10 * 9) continue;
      ++(bytes > 0 ? came : went);
      least = std::min(least, level);
    }
    return came > kSeveral && went >= kSeveral && least >= most / 4 * 3;
  }
};

}  // namespace

void RecordedProgram::find_full_caches() {
  constexpr size_t kSeveral = 3;
  cached_.assign(rows(), false);
  if (!passes_.empty() || call_events_.size() < kSeveral) return;
  std::map<uint32_t, HeldLevel> lines;  // by the innermost frame
  const AllocationColumns& all = model_.allocations;
  for (size_t i = 0; i < rows(); ++i) {
    const bool may_be = role(i) == StackRole::kUser || role(i) == StackRole::kForward;
    if (!may_be || all.seeded(i) || bytes_[i] <= kSmallBytes || all.birth(i) < first_forward_) {
      continue;
    }
    const auto next = std::upper_bound(call_events_.begin(), call_events_.end(), all.birth(i));
    const auto calls = static_cast<size_t>(call_events_.end() - next);
    if (calls < kSeveral || all.release(i) <= *(next + (kSeveral - 1))) continue;
    HeldLevel& line = lines[process_.names.stack(all.stack(i)).frame];
    line.rows.push_back(i);
    line.changes.emplace_back(all.birth(i), static_cast<int64_t>(bytes_[i]));
    if (all.release(i) != kNever) {
      line.changes.emplace_back(all.release(i), -static_cast<int64_t>(bytes_[i]));
    }
  }
  for (auto& [frame, line] : lines) {
    if (!line.is_full_cache(last_forward_)) continue;
    for (const size_t row : line.rows) cached_[row] = true;
  }
}

void RecordedProgram::find_runs() {
  uint32_t previous = 0;
  for (uint32_t i = 0; i < rows(); ++i) {
    const StackRole part = role(i);
    if (model_.allocations.seeded(i) ||
        (part != StackRole::kForward && part != StackRole::kBackward)) {
      previous = kNever;
      continue;
    }
    const uint32_t stack = places_.of(model_.allocations.stack(i));
    if (previous != kNever && !runs_.empty() && runs_.back().end == i && stack == previous &&
        model_.allocations.nn_module(i) == model_.allocations.nn_module(i - 1)) {
      ++runs_.back().end;
    } else {
      runs_.push_back({i, i + 1});
    }
    previous = stack;
  }
}

void RecordedProgram::find_modules() {
  module_.assign(rows(), 0);
  if (process_.names.nn_module_count() == 0) return;
  std::map<std::string, uint32_t> known;
  std::map<uint32_t, uint32_t> by_id;
  for (size_t i = 0; i < rows(); ++i) {
    const uint32_t id = process_.nn_module_of(model_.allocations[i]);
    if (id == 0) continue;
    const auto [at, fresh] = by_id.try_emplace(id);
    if (fresh) {
      const std::string path = process_.names.nn_module_text(id);
      const auto [place, added] = known.try_emplace(path, static_cast<uint32_t>(paths_.size()));
      if (added) paths_.push_back(path);
      at->second = place->second;
    }
    module_[i] = at->second;
  }
}

std::string_view RecordedProgram::module_class(const std::string& path) const {
  for (uint32_t id = 1; id < process_.names.nn_module_count(); ++id) {
    if (process_.names.nn_module_text(id) == path) {
      return process_.names.string(process_.names.nn_module(id).class_name);
    }
  }
  return {};
}

bool RecordedProgram::is_weight_copy(size_t row) const {
  const uint32_t stack = model_.allocations.stack(row);
  return places_.replicates(stack) || (places_.casts(stack) && is_parameter_size(2 * bytes_[row]));
}

namespace {

// The most of these blocks that are there at once. `lives`: birth and release, in order of birth.
size_t most_at_once(const std::vector<std::pair<uint32_t, uint32_t>>& lives) {
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> releases;
  size_t most = 0;
  for (const auto& [birth, release] : lives) {
    while (!releases.empty() && releases.top() <= birth) releases.pop();
    releases.push(release);
    most = std::max(most, releases.size());
  }
  return most;
}

}  // namespace

// Under autocast an operation first allocates 16-bit copies of its weights, then its result. So
// blocks of half the size of a parameter that are not the last of their operation, for most of the
// parameters' bytes, show it. Results have such sizes by chance: where neither native frames nor
// kernels tell more, as many copies as there are weights have to be there at once. Autocast keeps
// them to its end, and a graph to that of its backward pass; of weights that need no gradients,
// each is gone after its product. Passes with other lengths have other results, and the same
// copies.
void RecordedProgram::find_autocast() {
  const NumberWidth products = width_of_products(process_.compute);
  if (products == NumberWidth::k32) return;  // as kernels tell
  const bool may_be_chance = !names_operations() && products == NumberWidth::kUnknown;
  std::map<uint64_t, std::vector<std::pair<uint32_t, uint32_t>>> halves;  // lives, by size
  std::map<uint64_t, size_t> momentary;  // of products alone, by size
  std::map<uint64_t, std::set<size_t>> in_passes;
  const auto pass_of = [&](uint32_t event) {
    const auto next = std::find_if(passes_.begin(), passes_.end(),
                                   [&](const BackwardPass& pass) { return event < pass.end; });
    return static_cast<size_t>(next - passes_.begin());
  };
  for (const OperationRun& run : runs_) {
    if (role(run.first) != StackRole::kForward) continue;
    for (uint32_t i = run.first; i < run.end; ++i) {
      if (names_operations() ? !is_cast(i) : i + 1 == run.end) continue;
      halves[bytes_[i]].emplace_back(model_.allocations.birth(i), model_.allocations.release(i));
      if (!names_operations() && is_parameter_size(2 * bytes_[i])) {
        in_passes[bytes_[i]].insert(pass_of(model_.allocations.birth(i)));
      }
      if (is_gone_after(run, i)) ++momentary[bytes_[i]];
    }
  }
  std::map<uint64_t, size_t> weights;  // by size
  for (size_t i = 0; i < rows(); ++i) {
    if (category(i) == Category::kParameter && bytes_[i] >= 1024) ++weights[bytes_[i]];
  }
  uint64_t all = 0;
  uint64_t cast = 0;
  for (const auto& [bytes, count] : weights) {
    all += bytes * count;
    const auto copies = halves.find(bytes / 2);
    if (copies == halves.end()) continue;
    // Not of a second model, which only some passes train.
    if (!names_operations() && 2 * in_passes[bytes / 2].size() < passes_.size()) continue;
    const size_t found = std::max(most_at_once(copies->second), momentary[bytes / 2]);
    cast += bytes * (may_be_chance ? std::min(count, found) : count);
  }
  autocasts_ = all != 0 && cast > all / 5 * 3;
}

// What one product allocates besides its result and frees before anything else is allocated.
bool RecordedProgram::is_gone_after(const OperationRun& run, uint32_t row) const {
  const std::string_view file = operation_file(run.first);
  const bool product = operation(run.first) == "einsum" ||
                       file.find("torch/nn/modules/linear.py") != file.npos ||
                       file.find("torch/nn/modules/conv.py") != file.npos;
  const uint32_t next = run.end < rows() ? model_.allocations.birth(run.end) : kNever;
  return product && model_.allocations.release(row) < next;
}

// A gradient that is added to another one is freed in the backward pass. By chance other results
// have the size of a parameter; operations that have no weights, and the first result of those that
// have, are left out.
void RecordedProgram::find_accumulation() {
  for (const OperationRun& run : runs_) {
    for (uint32_t i = run.first; i < run.end; ++i) {
      if (category(i) == Category::kGradient) weighted_.emplace(operation(i));
    }
  }
  std::set<uint64_t> freed;
  for (const OperationRun& run : runs_) {
    if (role(run.first) != StackRole::kBackward || !has_weights(run.first)) continue;
    bool stays = false;
    for (uint32_t i = run.first; i < run.end; ++i) stays |= category(i) == Category::kGradient;
    const bool only_weights = gives_only_weights(operation(run.first));
    for (uint32_t i = run.first + (only_weights ? 0 : 1); i < run.end && !stays; ++i) {
      freed.insert(bytes_[i]);
    }
  }
  uint64_t all = 0;
  uint64_t added = 0;
  for (size_t i = 0; i < rows(); ++i) {
    if (category(i) != Category::kParameter || bytes_[i] < 1024) continue;
    all += bytes_[i];
    if (freed.contains(bytes_[i])) added += bytes_[i];
  }
  accumulates_ = all != 0 && added > all / 5 * 3;
}

bool RecordedProgram::gives_only_weights(std::string_view operation) {
  return operation.find("ToCopy") != operation.npos ||
         operation.find("Embedding") != operation.npos;
}

}  // namespace tidemark
