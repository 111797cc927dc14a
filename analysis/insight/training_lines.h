// The lines of a program that call modules, and which of them train.
//
// A line trains if a backward pass uses what it allocates, that is, frees it while it goes on. A
// graph of a validation or of a teacher that some variable keeps is alive in that backward pass,
// too, but survives it. Where no line's memory is freed so, because graphs are retained, being
// alive is enough. What would have followed a pass in which memory ran out is not known: if no pass
// under a line came to its end, the same line of code tells that others have called.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "analysis/steps/stack_roles.h"
#include "analysis/steps/steps.h"

namespace tidemark {

class TrainingLines {
 public:
  TrainingLines() = default;
  TrainingLines(const AllocationHistory& model, const StackRoles& roles);

  // Whether any line trains: a program without one only infers.
  bool any() const;
  // `caller`: as StackRoles::caller_of has it.
  bool trains(uint32_t caller) const;

 private:
  struct Visit;
  struct Line {
    uint32_t visits = 0;
    uint32_t feeding = 0;
    bool trains() const { return 2 * feeding >= visits; }
  };
  void note(const std::vector<Visit>& visits, bool is_long);
  void take_same_lines(const StackRoles& roles);

  std::unordered_map<uint32_t, Line> lines_;
  std::unordered_set<uint32_t> cut_off_;  // until the end of the survey: lines with such a pass
};

}  // namespace tidemark
