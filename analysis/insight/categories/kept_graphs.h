// Which of the activations that no backward pass used belong to a graph.
#pragma once

#include "analysis/insight/categories/categories.h"

namespace tidemark {

// This many kept blocks at once, of so many operations, are a graph; a program without gradients
// has a handful.
inline constexpr int64_t kGraphBlocks = 8;
inline constexpr size_t kGraphStacks = 3;

// A graph is many blocks of several operations at once; a list of outputs is not one.
void keep_only_graphs(const AllocationHistory& model, Categories& out);

}  // namespace tidemark
