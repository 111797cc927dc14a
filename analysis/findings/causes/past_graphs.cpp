#include "analysis/findings/causes/past_graphs.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "analysis/findings/largest_stack.h"
#include "analysis/history/rehearsal.h"
#include "analysis/names/module_stacks.h"

namespace tidemark {

namespace {

constexpr uint64_t kLeastPasses = 3;  // fewer may be by chance
constexpr size_t kLeastStacks = 2;    // a graph is of several operations
constexpr size_t kLeastBlocks = 6;

struct Graph {
  std::vector<size_t> rows;
  uint64_t bytes = 0;
  uint64_t others = 0;  // bytes of the same forward pass that are no part of it
  uint64_t shared = 0;  // of these, bytes that wait for a later backward pass
  std::unordered_set<uint32_t> stacks;

  bool is_most() const {
    return rows.size() >= kLeastBlocks && stacks.size() >= kLeastStacks && bytes >= others;
  }
};

// How many blocks backward passes allocate, with the graphs of earlier passes and without.
class Lengths {
 public:
  void add(const BackwardPass& pass, uint64_t births, uint32_t freed) {
    Share& share = pass.first < until_ ? later_ : first_;
    share.births += births;
    ++share.passes;
    until_ = std::max(until_, freed);
  }
  // One more graph at least doubles the pass; a second loss over a part of the same one does not.
  bool grow() const {
    return first_.passes != 0 && later_.passes != 0 && 2 * later_.mean() >= 3 * first_.mean();
  }

 private:
  struct Share {
    uint64_t births = 0;
    uint64_t passes = 0;
    uint64_t mean() const { return births / passes; }
  };
  Share first_;
  Share later_;
  uint32_t until_ = 0;  // event: a graph of an earlier pass is there
};

class Search {
 public:
  explicit Search(const DeviceEvidence& d)
      : d_(d),
        all_(d.model->allocations),
        passes_(d.backward_passes),
        in_module_(module_stacks(d.process->names)),
        unused_(d.categories.kept_without_backward.begin(),
                d.categories.kept_without_backward.end()) {}

  std::optional<PastGraph> run() const {
    if (const auto left = retained()) return left;
    return delayed();
  }

 private:
  bool is_of_graph(size_t i) const {
    const uint32_t stack = all_.stack(i);
    return !all_.seeded(i) && all_.block_bytes(i) > kSmallBytes && in_module_[stack] &&
           d_.roles->of(stack) == StackRole::kForward &&
           d_.categories.of[i] != Category::kWorkspace &&
           !unused_.contains(static_cast<uint32_t>(i));
  }

  // The pass that frees a block in its course; nothing: the program does, perhaps right after one.
  const BackwardPass* used_by(size_t i) const {
    const uint32_t release = all_.release(i);
    const auto after =
        std::upper_bound(passes_.begin(), passes_.end(), release,
                         [](uint32_t event, const BackwardPass& p) { return event < p.first; });
    if (after == passes_.begin()) return nullptr;
    const BackwardPass& pass = *std::prev(after);
    return all_.birth(i) < pass.first && release <= pass.last ? &pass : nullptr;
  }

  // When the optimizer has begun its step after a pass; kNever: it has not.
  uint32_t stepped_after(const BackwardPass& pass) const {
    const BirthRange rows = births_within(*d_.model, pass.end, pass.end + 1);
    const bool by_optimizer =
        rows.begin < rows.end && in_optimizer(d_.roles->of(all_.stack(rows.begin)));
    return by_optimizer ? pass.end : d_.steps.end_of_step(pass.last);
  }

  // The first allocation of a forward pass since an event; kNever: there is none.
  uint32_t forward_after(uint32_t event) const {
    if (event == kNever) return kNever;
    for (size_t i = births_within(*d_.model, event, kNever).begin; i < all_.size(); ++i) {
      const uint32_t stack = all_.stack(i);
      if (in_module_[stack] && d_.roles->of(stack) == StackRole::kForward) return all_.birth(i);
    }
    return kNever;
  }

  // An exception frees what such a pass would have freed.
  bool fails_in(const BackwardPass& pass) const {
    return std::any_of(
        d_.model->failures.begin(), d_.model->failures.end(),
        [&](const FailedAllocation& f) { return pass.first <= f.event && f.event < pass.end; });
  }

  // What is there when the next forward pass begins. Another backward pass may use what is there to
  // the end, or when memory ran out, unless the optimizer's step came before.
  Graph left_by(const BackwardPass& pass) const {
    Graph graph;
    const uint32_t next = forward_after(pass.end);
    const uint32_t next_step = forward_after(stepped_after(pass));
    const BirthRange rows = births_within(*d_.model, pass.forward_first, pass.first);
    for (size_t i = rows.begin; i < rows.end; ++i) {
      const uint32_t release = all_.release(i);
      if (!is_of_graph(i) || release <= pass.first) continue;
      const BackwardPass* const user = used_by(i);
      if (release <= (is_end_known(release) ? next : next_step) || user != nullptr) {
        graph.others += all_.block_bytes(i);
        if (user != nullptr && user->first > pass.first) graph.shared += all_.block_bytes(i);
      } else {
        add(graph, i);
      }
    }
    return graph;
  }

  bool is_end_known(uint32_t release) const {
    return release != kNever && !(d_.ran_out() && release > d_.model->failures.back().event);
  }

  void add(Graph& graph, size_t i) const {
    graph.rows.push_back(i);
    graph.bytes += all_.block_bytes(i);
    graph.stacks.insert(all_.stack(i));
  }

  // Graphs that are there when the pass after the optimizer's step begins, and that no other
  // backward pass uses.
  std::optional<PastGraph> retained() const {
    PastGraph found;
    std::unordered_map<uint32_t, uint64_t> by_stack;
    Rehearsal in_time(*d_.model);
    Lengths lengths;
    uint64_t followed = 0;  // passes that another forward pass follows
    uint64_t sharing = 0;
    for (const BackwardPass& pass : passes_) {
      if (pass.end >= d_.model->event_count() || fails_in(pass)) continue;
      ++followed;
      const Graph graph = left_by(pass);
      if (!graph.is_most()) continue;
      note(graph, by_stack, found);
      note_at_peak(graph, pass, found);
      sharing += graph.shared != 0 ? 1U : 0U;
      lengths.add(pass, births_of(pass), last_release(graph));
      for (const size_t i : graph.rows) in_time.leave_out_from(all_[i], pass.end);
    }
    if (found.passes < (d_.ran_out() ? 1 : kLeastPasses) || 2 * found.passes < followed) {
      return std::nullopt;
    }
    found.carries_state = lengths.grow();
    found.shares = 2 * sharing >= found.passes;
    return finished(found, by_stack, in_time);
  }

  uint64_t births_of(const BackwardPass& pass) const {
    const BirthRange rows = births_within(*d_.model, pass.first, pass.last + 1);
    return rows.end - rows.begin;
  }
  uint32_t last_release(const Graph& graph) const {
    uint32_t last = 0;
    for (const size_t i : graph.rows) last = std::max(last, all_.release(i));
    return last;
  }

  void note_at_peak(const Graph& graph, const BackwardPass& pass, PastGraph& found) const {
    const uint32_t peak = d_.model->allocated_peak.event;
    if (pass.end > peak) return;
    uint64_t bytes = 0;
    for (const size_t i : graph.rows) {
      if (all_.release(i) > peak) bytes += all_.block_bytes(i);
    }
    found.peak_bytes += bytes;
    found.peak_passes += bytes != 0 ? 1U : 0U;
  }

  // By pass: what it frees of forward passes.
  std::vector<Graph> used_graphs() const {
    std::vector<Graph> graphs(passes_.size());
    for (size_t i = 0; i < all_.size(); ++i) {
      d_.model->passed(i);
      if (!is_of_graph(i)) continue;
      if (const BackwardPass* pass = used_by(i)) {
        add(graphs[static_cast<size_t>(pass - passes_.data())], i);
      }
    }
    return graphs;
  }

  // Graphs of which most was there before the backward pass of the step before.
  std::optional<PastGraph> delayed() const {
    PastGraph found;
    found.waits = true;
    const std::vector<Graph> graphs = used_graphs();
    std::unordered_map<uint32_t, uint64_t> by_stack;
    Rehearsal in_time(*d_.model);
    for (size_t k = 1; k < graphs.size(); ++k) {
      const Graph& graph = graphs[k];
      if (!graph.is_most()) continue;
      uint64_t waiting = 0;
      for (const size_t i : graph.rows) {
        if (all_.birth(i) < passes_[k - 1].first) waiting += all_.block_bytes(i);
      }
      if (2 * waiting < graph.bytes || stepped_after(passes_[k - 1]) >= passes_[k].first) continue;
      note(graph, by_stack, found);
      leave_out_from(graph, passes_[k].forward_first, in_time);
      if (k == 1) leave_out_from(graphs[0], all_.birth(graph.rows.front()), in_time);
    }
    if (found.passes < kLeastPasses || 2 * found.passes < passes_.size()) return std::nullopt;
    return finished(found, by_stack, in_time);
  }

  // From where the next forward pass begins.
  void leave_out_from(const Graph& graph, uint32_t begin, Rehearsal& in_time) const {
    for (const size_t i : graph.rows) {
      if (all_.birth(i) < begin) in_time.leave_out_from(all_[i], begin);
    }
  }

  void note(const Graph& graph, std::unordered_map<uint32_t, uint64_t>& by_stack,
            PastGraph& found) const {
    ++found.passes;
    found.bytes = std::max(found.bytes, graph.bytes);
    for (const size_t i : graph.rows) {
      by_stack[all_.stack(i)] += all_.block_bytes(i);
      if (!d_.ran_out()) continue;
      const uint32_t failed = d_.model->failures.back().event;
      if (all_.birth(i) <= failed && all_.release(i) > failed) {
        found.at_failure_bytes += all_.block_bytes(i);
      }
    }
  }

  std::optional<PastGraph> finished(PastGraph found,
                                    const std::unordered_map<uint32_t, uint64_t>& by_stack,
                                    const Rehearsal& in_time) const {
    found.saved_bytes = in_time.saved_bytes();
    found.stack = largest_stack(by_stack);
    if (found.saved_bytes < d_.peak_bytes() / 20) return std::nullopt;
    return found;
  }

  const DeviceEvidence& d_;
  const AllocationColumns& all_;
  const std::vector<BackwardPass>& passes_;
  const std::vector<bool> in_module_;
  const std::unordered_set<uint32_t> unused_;
};

}  // namespace

std::optional<PastGraph> graph_of_past_step(const DeviceEvidence& d) {
  if (d.model == nullptr || d.backward_passes.empty()) return std::nullopt;
  return Search(d).run();
}

bool fails_for_past_graph(const DeviceEvidence& d) {
  if (!d.ran_out()) return false;
  const std::optional<PastGraph> past = graph_of_past_step(d);
  return past && past->at_failure_bytes >= std::max(d.model->failures.back().requested_bytes,
                                                    d.at_failure().allocated / 10);
}

}  // namespace tidemark
