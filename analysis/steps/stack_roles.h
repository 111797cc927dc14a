// The part of a training program that a stack's allocations come from. Derived from file and
// function names of PyTorch 2.x; every stack is examined once.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "analysis/load/trace_model.h"

namespace tidemark {

enum class StackRole : uint8_t {
  kUser,           // the program's own code outside everything below
  kForward,        // inside a module's call
  kBackward,       // autograd's engine, or no Python frames where other stacks have some
  kOptimizer,      // torch/optim
  kOptimizerInit,  // torch/optim creating its states
  kLoading,        // weights or data read from files
  kModuleSetUp,    // a module moved to the device or created there
  kData,           // data loading
  kCommunication,  // torch.distributed
  kSaving,         // a checkpoint being written: state dicts, torch.save
  kNone,           // not known: no stacks were recorded
};

inline bool in_optimizer(StackRole role) {
  return role == StackRole::kOptimizer || role == StackRole::kOptimizerInit;
}

// Of a stack without frames, without reading the others: where there are Python frames, it is the
// backward pass, whose threads run C++ only. This says nothing where no freed block has a stack:
// then only the state at the end named them.
StackRole role_without_frames(const ProcessModel& process);

class StackRoles {
 public:
  StackRoles() = default;
  // Reads every stack of the process.
  explicit StackRoles(const ProcessModel& process);

  StackRole of(uint32_t stack) const {
    return stack < roles_.size() ? roles_[stack] : StackRole::kNone;
  }
  // A stack of the line that called the outermost module, the same one for all that have its lines
  // of Python; 0 if it contains no module.
  uint32_t caller_of(uint32_t stack) const { return stack < callers_.size() ? callers_[stack] : 0; }
  // The frame of that line alone, whoever called its function; 0 if there is none.
  uint32_t frame_of_caller(uint32_t caller) const {
    const auto known = caller_frames_.find(caller);
    return known != caller_frames_.end() ? known->second : 0;
  }

 private:
  void unite_callers(const Dictionary& names);

  std::vector<StackRole> roles_;
  std::vector<uint32_t> callers_;
  std::unordered_map<uint32_t, uint32_t> caller_frames_;
};

}  // namespace tidemark
