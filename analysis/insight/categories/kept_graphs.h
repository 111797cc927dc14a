// Which of the activations that no backward pass used belong to a graph.
#pragma once

#include "analysis/insight/categories/categories.h"

namespace tidemark {

// This many kept blocks at once, of so many operations, are a graph; a program without gradients
// has a handful.
struct GraphSize {
  int64_t blocks = 0;
  size_t stacks = 0;
};
inline constexpr GraphSize kGraph = {8, 3};
// Of a model of a few operations, where all passes of a line keep most of what they compute.
inline constexpr GraphSize kSmallGraph = {4, 2};

// Of a pass (rows of its blocks in the order of birth), what is alive at its end, if that is most
// of it and is freed as autograd frees a graph: from its end to its beginning, and the result,
// which has it, last or long before. Variables of a function are freed from the first to the last,
// a list or tuple of results as a whole. Empty otherwise. `share`: one part in so many is enough.
std::vector<uint32_t> graph_freed_backwards(const AllocationHistory& model,
                                            const std::vector<uint32_t>& pass, uint64_t share = 2);

// A graph is many blocks of several operations at once; a list of outputs is not one.
void keep_only_graphs(const AllocationHistory& model, GraphSize least, Categories& out);

}  // namespace tidemark
