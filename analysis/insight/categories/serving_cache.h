// The KV cache of a program without gradients: keys and values live from one token to the next, so
// blocks of the model outlive the forward pass that allocated them. They are given back when their
// request ends; what a line of the program keeps one of with every pass, and never frees, is a
// leak.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "analysis/steps/stack_roles.h"
#include "analysis/steps/steps.h"

namespace tidemark {

class ServingCache {
 public:
  ServingCache(const ProcessModel& process, const AllocationHistory& model, const StackRoles& roles,
               const Steps& steps);

  // A forward pass begins: call in order, before survey().
  void add_pass(uint32_t event) { passes_.push_back(event); }
  // Looks at all allocations but workspaces, which are given by their births. Adds the sizes of
  // what outlives its pass.
  void survey(const std::unordered_set<uint64_t>& parameter_sizes,
              const std::unordered_set<uint32_t>& workspaces,
              std::unordered_set<uint64_t>& kept_sizes);

  // Several blocks of one line of the model outlive their pass, or a block outlives several passes
  // of a request. `pass_end`: the last allocation of the pass that allocated it; `kept_long`: it
  // outlives the operations that follow.
  bool holds(const Allocation& a, uint32_t pass_end, bool kept_long) const;
  // Functions of a cache keep it. Other blocks are none in a model without attention.
  bool has_attention() const { return may_attend_; }
  bool is_named(const Allocation& a, uint32_t pass_end, bool kept_long) const;
  // A line of the program keeps blocks of the sizes of several parameters: no keys and values.
  bool copies_model(const Allocation& a) const { return copies_.contains(a.stack); }
  // A line of the program makes it before the first pass, and others of many sizes, as a model has.
  bool holds_weights(const Allocation& a) const;
  // A line of the program has it from before the first pass to the end, through several of them.
  bool may_be_data(const Allocation& a) const;
  // Several passes begin while it is there.
  bool outlives_passes(const Allocation& a) const { return passes_in(a.birth, a.release) >= 3; }
  // A line of the program keeps a result of each pass until the last one is there.
  bool collects(const Allocation& a) const { return collecting_.contains(a.stack); }

 private:
  void index_passes();
  size_t passes_until(uint32_t event) const;
  size_t passes_in(uint32_t birth, uint32_t release) const;
  // The first four of them change different members; the last one needs what the first finds.
  void find_kept(const std::unordered_set<uint64_t>& parameter_sizes,
                 const std::unordered_set<uint32_t>& workspaces,
                 std::unordered_set<uint64_t>& kept_sizes);
  void find_concatenations();
  void find_lists();
  void find_copies();
  void find_alike();
  bool makes_weights(uint32_t stack) const;
  // Each layer has keys and values. Where that shows, a block of which there is but one is none.
  bool is_single(const Allocation& a) const;
  bool is_of_pool(const Allocation& a) const;
  bool is_kept_to_end(const Allocation& a) const;
  bool is_overtaken(size_t row, const std::vector<uint32_t>& rows) const;
  bool is_before_concatenation(const Allocation& a) const;

  const AllocationHistory& model_;
  const Dictionary& names_;
  const StackRoles& roles_;
  const Steps& steps_;
  const std::vector<bool> named_;               // by stack: a function of a cache allocates
  const std::vector<bool> below_named_;         // by stack: or calls what does
  const bool may_attend_;                       // the program's layers may have keys and values
  std::vector<uint32_t> passes_;                // events at which a forward pass begins
  std::vector<uint32_t> passes_before_;         // the number of passes before every 256th event
  std::unordered_set<uint32_t> cache_stacks_;   // several blocks of a pass outlive it
  std::unordered_set<uint32_t> copies_;         // stacks that copy the model
  std::unordered_set<uint32_t> concatenating_;  // stacks that make a longer copy with every token
  // Where such copies begin, in each request.
  struct Beginning {
    uint32_t first = 0;  // births of the first copy and of the second
    uint32_t second = 0;
    uint64_t prompt_bytes = 0;  // of what the first copy was made of
  };
  std::vector<Beginning> beginnings_;   // in order
  std::unordered_set<uint32_t> lists_;  // stacks of lists and queues
  // Blocks of a line that are freed together after several passes.
  struct Collection {
    size_t first = 0;  // the passes before the first one and before the last one
    size_t last = 0;
    size_t blocks = 0;
    size_t end = SIZE_MAX;  // the passes begun when they are freed
    // One of nearly every pass, freed soon after the last one. Buffers of requests are used then.
    size_t size() const {
      const bool grows = blocks <= last - first + 1 && last - first + 1 < 2 * blocks;
      return grows && blocks > 2 * (end - last) ? blocks : 0;
    }
  };
  std::unordered_set<uint32_t> collecting_;  // stacks of lists that are cleared at the end
  // By requested bytes: blocks that lines of the program have from before the first pass to the
  // end.
  std::unordered_map<uint64_t, uint32_t> first_buffers_;
  // Lines of the program, by frame, that make blocks of many sizes before the first pass and keep
  // them: weights of its own.
  std::unordered_map<uint32_t, std::unordered_set<uint64_t>> first_sizes_;
  // By requested bytes: the most blocks of lines of the program that are there at once, of those
  // that outlive several passes.
  std::unordered_map<uint64_t, uint32_t> alike_;
  uint32_t most_alike_ = 0;
  // Of a cache that is copied between two passes of a request, as a beam search reorders it.
  std::unordered_set<uint32_t> copying_;  // stacks
  std::unordered_set<uint64_t> copied_;   // requested bytes
};

}  // namespace tidemark
