// Steps of programs that train several models in turn, such as five passes of a critic for one of
// the generator: each round is a step.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/history/allocation_history.h"
#include "analysis/steps/stack_roles.h"

namespace tidemark {

// The lines that called a module last before each mark.
std::vector<uint32_t> callers_before(const AllocationHistory& model, const StackRoles& roles,
                                     const std::vector<uint32_t>& marks);
// If the marks end passes of several models in turn: the ends of the rounds; else nothing.
std::vector<uint32_t> boundaries_of_rounds(const AllocationHistory& model, const StackRoles& roles,
                                           std::vector<uint32_t> marks);
// Of the boundaries of a loop with passes of several models in turn, keeps only those that begin a
// round of them.
void keep_rounds(const AllocationHistory& model, const StackRoles& roles,
                 std::vector<uint32_t>& loop);

}  // namespace tidemark
