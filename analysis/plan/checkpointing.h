// Layers that keep their result only and are computed again in the backward pass.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/plan/layer_passes.h"

namespace tidemark {

// Frees what the runs of the layers keep, and repeats their requests at the beginning of their
// backward passes. Also in a forward pass that ran out of memory before its backward pass, and
// where graphs are kept without one; without a graph nothing changes. `sizes`: by row; 0: the
// changed program does not make it. False: no run of a layer keeps a graph, or
// all are checkpointed already.
bool checkpoint_layers(const RecordedProgram& program, const RequestLog& log,
                       const RequestPlaces& places, const std::vector<LayerPass>& passes,
                       const std::vector<uint64_t>& sizes, RequestEdits& edits);

struct CheckpointSaving {
  uint64_t layers = 0;
  uint64_t bytes = 0;  // by which the allocated peak is lower
  uint64_t began = 0;  // layers that ran, the last perhaps not to its end
};

// Of all repeated layers; none: there are none.
std::optional<CheckpointSaving> checkpoint_saving(const RecordedProgram& program);

}  // namespace tidemark
