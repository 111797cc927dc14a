#include "analysis/passes/batch_parts.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace tidemark {

namespace {

constexpr uint64_t kScalarBytes = 512;

struct Call {
  uint32_t first = 0;  // event
  uint32_t step = 0;
  uint64_t bytes = 0;
  bool has_input = false;  // allocated since the call before it
};

// A model by the name of its root, and the stack of the line that calls it.
using CalledAt = std::pair<uint32_t, uint32_t>;

// By nn.Module: the number of its root.
std::vector<uint32_t> roots_of(const Dictionary& names) {
  std::map<std::string, uint32_t> numbers;
  std::vector<uint32_t> roots(names.nn_module_count(), 0);
  for (uint32_t id = 1; id < roots.size(); ++id) {
    const std::string path = names.nn_module_text(id);
    roots[id] = numbers.try_emplace(path.substr(0, path.find('.')), id).first->second;
  }
  return roots;
}

// The calls that one line makes of a model, in order.
struct Caller {
  uint32_t first_stack = 0;
  uint32_t first_module = 0;
  size_t last_first = 0;  // the last row that is like those a call begins with
  std::vector<Call> calls;

  // Whether in most steps there are several calls that allocate the same, the last perhaps less,
  // without inputs of their own.
  bool in_parts() const {
    size_t divided = 0;
    size_t steps = 0;
    for (size_t i = 0; i < calls.size();) {
      size_t end = i + 1;
      bool equal = true;
      for (; end < calls.size() && calls[end].step == calls[i].step; ++end) {
        const bool last = end + 1 == calls.size() || calls[end + 1].step != calls[i].step;
        equal = equal && !calls[end].has_input &&
                (calls[end].bytes == calls[i].bytes || (last && calls[end].bytes < calls[i].bytes));
      }
      ++steps;
      if (equal && end - i > 1) ++divided;
      i = end;
    }
    return divided > steps / 2;
  }
  // The first event of the next call in the same step; kNever: it is the last.
  uint32_t next_after(uint32_t event) const {
    const auto next = std::upper_bound(calls.begin(), calls.end(), event,
                                       [](uint32_t e, const Call& c) { return e < c.first; });
    if (next == calls.begin() || next == calls.end()) return kNever;
    return next->step == std::prev(next)->step ? next->first : kNever;
  }
};

class PartSearch {
 public:
  PartSearch(const ProcessModel& process, const AllocationHistory& model, const StackRoles& roles,
             const Steps& steps, const Categories& categories)
      : model_(model),
        all_(model.allocations),
        roles_(roles),
        steps_(steps),
        categories_(categories),
        recomputing_(recomputing_stacks(process.names)),
        roots_(roots_of(process.names)) {}

  BatchParts run(std::span<const BackwardPass> passes) {
    BatchParts found;
    find_calls();
    std::erase_if(callers_, [](const auto& entry) { return !entry.second.in_parts(); });
    if (callers_.empty()) return found;
    find_stacks();
    found.rows.assign(all_.size(), false);
    for (size_t i = 0; i < all_.size(); ++i) found.rows[i] = stacks_.contains(all_.stack(i));
    for (const BackwardPass& pass : passes) add_backward(pass, found.rows);
    measure(found);
    return found;
  }

 private:
  bool is_call(size_t row) const {
    const uint32_t stack = all_.stack(row);
    return roles_.of(stack) == StackRole::kForward && roles_.caller_of(stack) != 0 &&
           !(stack < recomputing_.size() && recomputing_[stack]);
  }

  CalledAt called_at(size_t row) const {
    const uint32_t module = all_.nn_module(row);
    return {module < roots_.size() ? roots_[module] : 0, roles_.caller_of(all_.stack(row))};
  }

  void find_calls() {
    uint32_t step = 0;
    uint32_t input = 0;  // event at which the newest was allocated
    for (size_t i = 0; i < all_.size(); ++i) {
      if (all_.seeded(i)) continue;
      const uint32_t birth = all_.birth(i);
      while (step < steps_.boundaries.size() && steps_.boundaries[step] <= birth) ++step;
      if (!is_call(i)) {
        const bool data =
            categories_.of[i] == Category::kInput || roles_.of(all_.stack(i)) == StackRole::kData;
        if (data && all_.asked_bytes(i) > kScalarBytes) input = birth;
        continue;
      }
      Caller& caller = callers_[called_at(i)];
      begin_call(caller, i, step, input);
      caller.calls.back().bytes += all_.asked_bytes(i);
    }
  }

  // A call begins as the first one did. Layers that are alike differ in their nn.Module.
  void begin_call(Caller& caller, size_t row, uint32_t step, uint32_t input) const {
    if (caller.calls.empty()) {
      caller.first_stack = all_.stack(row);
      caller.first_module = all_.nn_module(row);
    }
    const bool first =
        all_.stack(row) == caller.first_stack && all_.nn_module(row) == caller.first_module;
    const bool begins = first && caller.last_first + 1 != row;
    if (begins || caller.calls.empty()) {
      const bool has_input = caller.calls.empty() || input > caller.calls.back().first;
      caller.calls.push_back({all_.birth(row), step, 0, has_input});
    }
    if (first) caller.last_first = row;
  }

  // What lives until the next call, such as results that are collected, grows with the batch.
  void find_stacks() {
    std::unordered_set<uint32_t> kept;
    for (size_t i = 0; i < all_.size(); ++i) {
      if (all_.seeded(i) || !is_call(i)) continue;
      const auto caller = callers_.find(called_at(i));
      if (caller == callers_.end()) continue;
      const uint32_t next = caller->second.next_after(all_.birth(i));
      if (next == kNever) continue;
      (all_.release(i) < next ? stacks_ : kept).insert(all_.stack(i));
    }
    for (const uint32_t stack : kept) stacks_.erase(stack);
  }

  // The backward pass of a call has the size of its part, too.
  void add_backward(const BackwardPass& pass, std::vector<bool>& rows) const {
    const BirthRange forward = births_within(model_, pass.forward_first, pass.first);
    uint64_t parts = 0;
    uint64_t others = 0;
    for (size_t i = forward.begin; i < forward.end; ++i) {
      // A validation before it is not its forward pass.
      if (is_call(i) && all_.release(i) >= pass.first) {
        (rows[i] ? parts : others) += all_.asked_bytes(i);
      }
    }
    if (parts <= others) return;
    const BirthRange backward = births_within(model_, pass.first, pass.end);
    for (size_t i = backward.begin; i < backward.end; ++i) {
      rows[i] = rows[i] || roles_.of(all_.stack(i)) == StackRole::kBackward;
    }
  }

  void measure(BatchParts& found) const {
    const uint32_t peak = model_.allocated_peak.event;
    found.peak_bytes = model_.allocated_peak.bytes;
    std::unordered_map<uint32_t, uint64_t> by_caller;
    for (size_t i = 0; i < all_.size() && all_.birth(i) <= peak; ++i) {
      if (!found.rows[i] || all_.release(i) <= peak) continue;
      found.bytes_at_peak += all_.block_bytes(i);
      by_caller[roles_.caller_of(all_.stack(i))] += all_.block_bytes(i);
    }
    by_caller.erase(0);
    const auto most =
        std::max_element(by_caller.begin(), by_caller.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most != by_caller.end()) found.caller = most->first;
  }

  const AllocationHistory& model_;
  const AllocationColumns& all_;
  const StackRoles& roles_;
  const Steps& steps_;
  const Categories& categories_;
  const std::vector<bool> recomputing_;
  const std::vector<uint32_t> roots_;
  std::map<CalledAt, Caller> callers_;
  std::unordered_set<uint32_t> stacks_;  // of what each call lets go of
};

}  // namespace

BatchParts find_batch_parts(const ProcessModel& process, const AllocationHistory& model,
                            const StackRoles& roles, const Steps& steps,
                            const Categories& categories, std::span<const BackwardPass> passes) {
  // Without names of modules, layers that are alike look like calls.
  if (steps.count() == 0 || categories.of.empty() || process.names.nn_module_count() <= 1) {
    return {};
  }
  return PartSearch(process, model, roles, steps, categories).run(passes);
}

}  // namespace tidemark
