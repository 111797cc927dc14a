// What a stack says about the allocations made under it: which part of a training program they
// come from. Read from file and function names of PyTorch 2.x; every stack is looked at once.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/names/dictionary.h"

namespace tidemark {

enum class StackRole : uint8_t {
  kUser,           // the program's own code outside everything below
  kForward,        // inside a module's call
  kBackward,       // autograd's engine, or no Python stack where others have one
  kOptimizer,      // torch/optim
  kOptimizerInit,  // torch/optim making its states
  kModuleSetUp,    // a module moved to the device or made there
  kData,           // data loading
  kCommunication,  // torch.distributed
  kSaving,         // a checkpoint being written: state dicts, torch.save
  kNone,           // nothing is known: no stacks were recorded
};

class StackRoles {
 public:
  StackRoles() = default;
  // Reads every stack of the process. A stack of no frames is the backward pass where others have
  // Python frames: its threads are C++ and have none.
  explicit StackRoles(const Dictionary& names);

  StackRole of(uint32_t stack) const {
    return stack < roles_.size() ? roles_[stack] : StackRole::kNone;
  }
  // The stack of the line that called the outermost module; 0 where there is no module in it.
  uint32_t caller_of(uint32_t stack) const { return stack < callers_.size() ? callers_[stack] : 0; }

 private:
  std::vector<StackRole> roles_;
  std::vector<uint32_t> callers_;
};

}  // namespace tidemark
