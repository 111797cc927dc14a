// Allocations that two recordings of a program, or two of its steps, have in common.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/plan/program/program.h"

namespace tidemark {

struct RowPair {
  uint32_t row;
  uint32_t other;
};

// Matched by stack, nn.Module and order. Of a stack count the functions, the names of their files
// and the lines, but neither folders nor the lines of Python's own library, and of native frames
// only those of C++: recordings may come from two machines.
std::vector<RowPair> matched_rows(const RecordedProgram& program, BirthRange rows,
                                  const RecordedProgram& other, BirthRange others);

}  // namespace tidemark
