// What each forward pass leaves when it ends, in a survey of all allocations: a graph that waits
// for a backward pass, one that no backward pass uses, or only a result.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "analysis/insight/categories/weight_copies.h"
#include "analysis/insight/lives/block_life.h"
#include "analysis/insight/lives/workspaces.h"
#include "analysis/insight/training_lines.h"
#include "analysis/steps/stack_roles.h"

namespace tidemark {

class PassGraphs {
 public:
  // `in_module`: by stack. `parameter_sizes`: those known so far, which may grow. All are kept by
  // reference.
  PassGraphs(const AllocationHistory& model, const StackRoles& roles,
             const std::vector<bool>& in_module, const WeightCopies& copies,
             const Workspaces& workspaces, const std::unordered_set<uint64_t>& parameter_sizes)
      : model_(model),
        roles_(roles),
        in_module_(in_module),
        copies_(copies),
        workspaces_(workspaces),
        parameter_sizes_(parameter_sizes),
        lines_(model, roles),
        trains_(lines_.any()) {}

  // Call for all rows but those from before the history, in order. Returns whether a forward pass
  // begins.
  bool add(uint32_t row);
  void end() { end_pass(kNever, kNever); }

  // Passes by their ends, the births of their last blocks.
  bool is_unused(uint32_t pass_end) const { return unused_.contains(pass_end); }
  // Of which little is alive at the end.
  bool has_no_graph(uint32_t pass_end) const { return without_graph_.contains(pass_end); }
  // Whether several passes have let go of what they computed, and hardly any kept a graph.
  bool let_go() const { return without_graph_.size() >= 3 && 4 * graphs_ <= without_graph_.size(); }
  // Whether the line that calls the module runs passes of few operations and keeps their graphs.
  bool is_small(uint32_t stack) const { return small_.contains(roles_.caller_of(stack)); }
  bool has_small() const { return !small_.empty(); }
  // Whether a module allocates there for no backward pass, in a program that has some.
  bool validates_at(uint32_t stack) const {
    return trains_ && stack < in_module_.size() && in_module_[stack] &&
           !lines_.trains(roles_.caller_of(stack));
  }

 private:
  void end_pass(uint32_t backward, uint32_t next_pass);
  bool fails_before(uint32_t next_pass) const;
  bool is_freed_backwards() const;

  const AllocationHistory& model_;
  const StackRoles& roles_;
  const std::vector<bool>& in_module_;
  const WeightCopies& copies_;
  const Workspaces& workspaces_;
  const std::unordered_set<uint64_t>& parameter_sizes_;
  const TrainingLines lines_;
  const bool trains_;
  bool in_pass_ = false;
  std::vector<uint32_t> pass_;  // rows
  std::unordered_set<uint32_t> unused_;
  std::unordered_set<uint32_t> without_graph_;
  size_t graphs_ = 0;                   // unused ones, of passes that no error ended
  std::unordered_set<uint32_t> small_;  // lines that call models of few operations
};

}  // namespace tidemark
