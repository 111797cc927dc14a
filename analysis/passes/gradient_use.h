// Gradients that no optimizer uses: those of a teacher, or of a part that is meant to be frozen.
//
// A program frees the gradients that its optimizers step, in every step. If it does, a gradient
// that survives several such steps belongs to no optimizer, and every backward pass adds to it. In
// a history that began after it was allocated, it shows by what is added: the backward pass
// computes gradients in the sizes of parameters that it frees at once, whereas those of other
// parameters stay until the end of the step.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "analysis/insight/categories/categories.h"
#include "analysis/passes/backward_passes.h"
#include "analysis/steps/steps.h"

namespace tidemark {

struct GradientUse {
  std::vector<size_t> unused;  // rows of blocks
  // Whether states of the optimizers tell which gradients they step. Otherwise those of parameters
  // that are trained may survive as well, where the program sets them to zero.
  bool certain = true;
  BackwardPass pass;                // one that computes them
  std::map<uint32_t, bool> births;  // of the gradients it computes: event -> whether unused
};

// Nothing if all gradients are used, or if it cannot be known.
GradientUse find_gradient_use(const AllocationHistory& model, const StackRoles& roles,
                              const Steps& steps, const Categories& categories,
                              std::span<const BackwardPass> passes);

// Unused gradients that are older than the history: each has a parameter of its size. Sets their
// categories and those of blocks of these sizes of which nothing is known.
void sort_unused_gradients(const AllocationHistory& model, const GradientUse& use,
                           Categories& categories);

}  // namespace tidemark
