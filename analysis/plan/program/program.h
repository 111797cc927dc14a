// What a recording tells about the program it was made of: the part of the program each allocation
// belongs to, and how its operations follow each other. The basis of every plan.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "analysis/insight/categories/categories.h"
#include "analysis/insight/phases.h"
#include "analysis/passes/backward_passes.h"
#include "analysis/passes/batch_parts.h"
#include "analysis/plan/program/operation_places.h"

namespace tidemark {

// Allocations that one operation made one after another: rows [first, end), with the same stack.
struct OperationRun {
  uint32_t first = 0;
  uint32_t end = 0;
};

class RecordedProgram {
 public:
  RecordedProgram(const ProcessModel& process, const AllocationHistory& model);
  // With what is known already.
  RecordedProgram(const ProcessModel& process, const AllocationHistory& model,
                  const StackRoles& roles, Steps steps, Categories categories);

  const ProcessModel& process() const { return process_; }
  const AllocationHistory& model() const { return model_; }
  size_t rows() const { return model_.allocations.size(); }
  // As requested; of rows that do not know it, the size of the block.
  uint64_t bytes(size_t row) const { return bytes_[row]; }
  const Categories& categories() const { return categories_; }
  Category category(size_t row) const { return categories_.of[row]; }
  StackRole role(size_t row) const { return role_of_stack(model_.allocations.stack(row)); }
  // Functions of attention that the program calls outside of any nn.Module are a forward pass.
  StackRole role_of_stack(uint32_t stack) const {
    const StackRole role = roles_.of(stack);
    return role == StackRole::kUser && attends(stack) ? StackRole::kForward : role;
  }
  const Steps& steps() const { return steps_; }
  const std::vector<BackwardPass>& passes() const { return passes_; }
  // Rows of the gradients of the first backward pass, or of those from before the history that it
  // adds to.
  std::vector<uint32_t> gradients() const;
  // Validation and generation beside training, which may have a batch of their own.
  const std::vector<Phase>& evaluations() const { return evaluations_; }
  // What may follow the size of a part of the batch, and not the batch.
  const BatchParts& batch_parts() const { return batch_parts_; }
  bool has_optimizer() const { return categories_.has_optimizer; }

  // Runs of a forward or backward pass, in order.
  const std::vector<OperationRun>& runs() const { return runs_; }
  // A node of the backward pass, or the innermost function without its class: "softmax",
  // "SoftmaxBackward0".
  std::string_view operation(size_t row) const {
    return places_.name(model_.allocations.stack(row));
  }
  std::string_view operation_file(size_t row) const {
    return places_.file(model_.allocations.stack(row));
  }
  // Whether it is a softmax by the name of its function, or of the file of its module.
  bool is_softmax(size_t row) const {
    return names_softmax(operation(row)) ||
           (operation(row) == "forward" && names_softmax(file_stem(operation_file(row))));
  }
  // What the operation's frame called, "bmm", where native frames tell.
  std::string_view called(size_t row) const {
    return places_.called(model_.allocations.stack(row));
  }
  // Path of the nn.Module that ran, or that a parameter belongs to; empty: not known.
  const std::string& module_path(size_t row) const { return paths_[module_[row]]; }
  bool knows_modules() const { return paths_.size() > 1; }
  // The class of the nn.Module at a path; empty: there is none.
  std::string_view module_class(const std::string& path) const;

  // Weights are cast to 16 bits in every forward pass (torch.autocast).
  bool autocasts() const { return autocasts_; }
  // Whether autocast makes this copy in 16 bits, as native frames tell.
  bool is_cast(size_t row) const { return places_.casts(model_.allocations.stack(row)); }
  // Whether native frames name operations, and so tell every such copy.
  bool names_operations() const { return places_.names_operations(); }
  // Whether it copies a weight, in 16 bits or for another device, as the stack tells.
  bool is_weight_copy(size_t row) const;
  // Backward passes add to gradients that exist already.
  bool accumulates() const { return accumulates_; }
  // Whether operations of this kind computed gradients that stayed.
  bool has_weights(size_t row) const { return weighted_.contains(operation(row)); }
  // Its backward pass does not begin with the gradient of an input: conversions, embeddings.
  static bool gives_only_weights(std::string_view operation);
  // Whether a block is there before the first backward pass and in the last, or without any, before
  // the first call of a model and after the last, if there are several.
  bool outlives_steps(size_t row) const;
  // Whether it was gone before the first call of a model.
  bool precedes_steps(size_t row) const {
    return model_.allocations.release(row) <= first_forward_ && first_forward_ != kNever;
  }
  // Whether it holds weights that are no parameters and that the program made before it calls a
  // model, to the end.
  bool is_own_weight(size_t row) const { return own_weights_[row]; }
  // Whether the program made it before it trains and keeps it over a step, with the size of a
  // weight or where an object is set up: weights of modules, and states of an optimizer, of its
  // own.
  bool is_own_state(size_t row) const { return own_states_[row]; }
  // Events: the first and the last allocation of a forward pass; kNever and 0 without any.
  uint32_t first_forward() const { return first_forward_; }
  uint32_t last_forward() const { return last_forward_; }
  // Events at which the line that made the first one makes one again, in order.
  const std::vector<uint32_t>& call_events() const { return call_events_; }
  // Whether a forward pass allocates it in the size of such a weight, as it is or unpacked.
  bool unpacks_weights(size_t row) const;
  // Whether a cache was there before the first call of a model and stays, in a program that calls
  // it with batches of many sizes: a pool, which these share.
  bool is_pool(size_t row) const;
  // Whether it is of past requests, in a cache that is full: old entries make room for new ones.
  bool is_cached(size_t row) const { return cached_[row]; }
  // Whether a parameter has this size.
  bool is_parameter_size(uint64_t bytes) const;
  // Distinct sizes of parameters, ascending.
  const std::vector<uint64_t>& parameter_sizes() const { return parameter_sizes_; }

 private:
  bool attends(uint32_t stack) const { return stack < attends_.size() && attends_[stack]; }
  void find_parts();
  void find_calls();
  void find_own_weights();
  void find_own_states();
  void find_full_caches();
  void find_runs();
  void find_modules();
  void find_autocast();
  bool is_gone_after(const OperationRun& run, uint32_t row) const;
  void find_accumulation();

  const ProcessModel& process_;
  const AllocationHistory& model_;
  StackRoles roles_;
  OperationPlaces places_;
  std::vector<bool> attends_;  // by stack
  Steps steps_;
  Categories categories_;
  std::vector<BackwardPass> passes_;
  std::vector<Phase> evaluations_;
  BatchParts batch_parts_;
  std::vector<uint64_t> bytes_;
  std::vector<OperationRun> runs_;
  std::vector<uint32_t> module_;  // by row: index of paths_
  std::vector<std::string> paths_ = {""};
  std::vector<uint64_t> parameter_sizes_;
  std::vector<bool> own_weights_;
  std::unordered_set<uint64_t> own_weight_sizes_;
  std::vector<bool> own_states_;
  std::vector<bool> cached_;
  std::set<std::string, std::less<>> weighted_;  // operations that have weights
  uint32_t first_forward_ = kNever;  // events: the first and last allocation of a forward pass
  uint32_t last_forward_ = 0;
  std::vector<uint32_t> call_events_;  // of the line that made the first one
  std::set<uint64_t> call_sizes_;      // that this line made
  bool autocasts_ = false;
  bool accumulates_ = false;
};

}  // namespace tidemark
