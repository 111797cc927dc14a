// Which of the activations that no backward pass used belong to a graph.
#pragma once

#include "analysis/insight/categories/categories.h"

namespace tidemark {

// A graph is many blocks of several operations at once; a list of outputs is not one.
void keep_only_graphs(const AllocationHistory& model, Categories& out);

}  // namespace tidemark
