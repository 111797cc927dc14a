// Changes to a program, and what each would have saved in the recorded run: advice that several
// rules give. None comes back where the trace does not support it.
#pragma once

#include <cstddef>
#include <optional>

#include "analysis/findings/evidence.h"

namespace tidemark {

// Half the batch or the sequence: activations and inputs shrink, the rest does not.
std::optional<Advice> halve_batch(const DeviceEvidence& d);
// Recompute the activations of repeated layers in the backward pass.
std::optional<Advice> checkpoint_layers(const DeviceEvidence& d);
// Computing in 16 bits (autocast), where the kernels computed in float32.
std::optional<Advice> mixed_precision(const DeviceEvidence& d);
// Optimizer state and gradients over the ranks.
std::optional<Advice> shard_states(const DeviceEvidence& d);
// An optimizer that works without parameter-sized temporaries.
std::optional<Advice> fuse_optimizer(const DeviceEvidence& d);
// Settings of the allocator against holes, from the holes themselves. `devices`: of the whole job.
std::optional<Advice> change_allocator(const DeviceEvidence& d, size_t devices);

void add(std::vector<Advice>& list, std::optional<Advice> advice);

}  // namespace tidemark
