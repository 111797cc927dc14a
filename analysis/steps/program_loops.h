// The loops of a program, as its Python stacks show them.
//
// While a function runs, the line it has reached moves forward; where it moves back, a loop of this
// function begins another round. A function that is called again begins one, too. So the order of
// stacks shows every loop of the program, at every level of its calls. Loops inside PyTorch are not
// the program's.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/names/program_places.h"
#include "analysis/steps/loop_rounds.h"
#include "analysis/steps/stack_roles.h"

namespace tidemark {

inline constexpr size_t kLeastRounds = 3;

// What a loop's rounds can be steps of. Calls of a module are steps of inference only, and only as
// parts of another loop if the program allocates between them; rounds around micro-batches, and
// those of a function that generates something, are steps of training only. Rounds around many
// others are steps only if these are tokens. Rounds that begin at a later line than others, and end
// where these do, are steps only if the earlier line does not run in each of them. Calls of another
// function that the program allocates between are steps of inference if nothing else is.
enum class LoopUse : uint8_t { kAny, kTraining, kInference, kPart, kAround, kWithin, kCalled };

// Loops of one function that begin at the same line differ in where they end: the one over
// micro-batches ends before the optimizer's step, the one around it after.
struct Loop {
  uint32_t function = 0;
  uint32_t depth = 0;
  int64_t first_line = 0;
  int64_t last_line = 0;  // it goes back from there or beyond
  LoopUse use = LoopUse::kAny;
  std::vector<uint32_t> rounds;   // allocations that begin one
  std::vector<uint32_t> entries;  // those of them at which the function was called
};

class ProgramLoops {
 public:
  ProgramLoops(const Dictionary& names, const AllocationHistory& model, const StackRoles& roles);

  // Whether there are Python stacks to tell. Without, there are no loops.
  bool are_known() const { return placed_ * 2 >= unplaced_; }
  std::vector<Loop>& loops() { return loops_; }
  const std::vector<Loop>& loops() const { return loops_; }

  LineOfAllocation lines_in(uint32_t function);
  // The line of `outer` from which a function is called, if it is; 0: it is not.
  int64_t called_from(uint32_t function, uint32_t outer);
  // The first event after a loop's last round that the program's other functions allocate at, or
  // other lines of the one that calls it.
  uint32_t end_of(const Loop& loop);

 private:
  // A function called from one place: its lines move back where a loop begins another round.
  struct Function {
    uint32_t depth = 0;
    bool inside = false;  // these as in Place
    bool generates = false;
    bool calls = false;
    int64_t first_line = INT64_MAX;  // of those that it allocates at
    int64_t last_line = 0;
    std::map<std::pair<int64_t, int64_t>, uint32_t> turns;  // to a line, from a line
    uint32_t entries = 0;                                   // calls after something else

    uint32_t turn_count() const;
  };
  // From one allocation of a thread to the next.
  struct Passage {
    uint32_t count = 0;
    uint32_t back_in = UINT32_MAX;  // function that went back
    int64_t back_from = 0;          // lines
    int64_t back_to = 0;
    uint32_t on_in = UINT32_MAX;  // function that went on to a later line
    int64_t on_from = 0;
    int64_t on_to = 0;
    std::vector<uint32_t> entered;  // functions
    std::vector<uint32_t> turned;   // loops that began another round
  };

  std::vector<uint32_t> threads_of_places() const;
  template <typename Use>
  void for_each_passage(Use&& use);
  uint32_t function_of(uint32_t place);
  Passage passage_of(uint32_t from, uint32_t to);
  void count_placed(const StackRoles& roles);
  void find_lines();
  void find_turns();
  void find_loops();
  void add_loops(uint32_t function, int64_t first_line, LoopUse use);
  void add_loop(uint32_t function, int64_t first_line, int64_t last_line, LoopUse use);
  void add_loop_within(uint32_t function, int64_t first_line);
  void collect_rounds();
  void find_next_loops();

  const AllocationHistory& model_;
  const Places places_;
  std::unordered_map<uint64_t, Passage> passages_;  // from one place to another
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t> numbers_;
  std::vector<Function> functions_;
  std::vector<Loop> loops_;
  std::vector<std::vector<uint32_t>> loops_in_;  // by function
  uint32_t placed_ = 0;                          // allocations whose stack has Python frames
  uint32_t unplaced_ = 0;                        // the others, without the backward pass
};

}  // namespace tidemark
