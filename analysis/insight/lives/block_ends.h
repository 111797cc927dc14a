// How many steps of the program the blocks of each stack outlive.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "analysis/insight/lives/block_life.h"
#include "analysis/steps/stack_roles.h"
#include "analysis/steps/steps.h"

namespace tidemark {

class BlockEnds {
 public:
  BlockEnds(const ProcessModel& process, const StackRoles& roles, const Steps& steps)
      : roles_(roles), steps_(steps), ends_(process.names.stack_count() + 1) {}

  // In the order of birth, before any question.
  void note(const Allocation& a);

  // Still alive at the end of the following step. Where the history ends before that, as most
  // earlier blocks of the same line; to the end, where there is no second step.
  bool outlives_step(const Allocation& a);
  // A library's workspace is allocated under the line that needs it first, and stays: one block of
  // a stack that recurs in every step. A retained graph leaves one more block in each step. So are
  // buffers that a line makes in the first steps, keeps, and takes in turn from then on.
  bool is_single_or_fixed_set(uint32_t stack) const;
  // What is computed for a list or a cache of the program, step after step: by a function, or most
  // of the bytes of a line of a module, which may also compute small statistics for itself.
  bool is_listed(const Allocation& a, const std::vector<bool>& in_module);
  // A block that is replaced by a larger one each time holds what earlier steps left.
  bool is_collection(uint32_t stack) const;
  // Whether results of modules outlive their steps again and again: of more lines than the one or
  // two whose results a list has.
  bool keep_graphs(const std::vector<bool>& in_module) const;
  // A block of a backward pass that stays as others of its stack and size do, from step to step.
  // `failure`: the next event after its birth at which memory ran out.
  bool is_left_in_each_step(const Allocation& a, uint32_t failure);

 private:
  struct Ends {
    uint32_t seen = 0;  // blocks whose step and the next one end in the history
    uint32_t survived = 0;
    uint64_t seen_bytes = 0;
    uint64_t survived_bytes = 0;
    uint32_t all = 0;
    uint32_t stayed = 0;
    uint32_t last_birth = 0;
    uint32_t larger = 0;  // than the block before
    uint64_t last_bytes = 0;
  };

  // Blocks of one kind that outlive the step after their own.
  struct LeftBlocks {
    uint32_t steps = 0;  // that left some
    uint32_t last_end = 0;
  };

  size_t index_of(uint32_t stack) const { return std::min<size_t>(stack, ends_.size() - 1); }
  uint32_t end_of_next_step(const Allocation& a);

  const StackRoles& roles_;
  const Steps& steps_;
  std::vector<Ends> ends_;   // by stack; the last one: of stacks that are not known
  uint32_t step_begin_ = 0;  // of the step that end_of_next_step() looked at
  uint32_t step_end_ = 0;
  uint32_t next_end_ = kNever;
  // Of backward passes, by stack and size.
  std::map<std::pair<uint32_t, uint64_t>, LeftBlocks> left_by_backward_;
};

}  // namespace tidemark
