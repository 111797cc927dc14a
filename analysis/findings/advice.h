// Changes to a program, and what each would have saved in the recorded run: advice that several
// rules give. Each function returns none where the trace does not support the advice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/findings/evidence.h"
#include "analysis/whatif/whatif.h"

namespace tidemark {

// Halve the batch or the sequence length: activations, inputs and the passes' temporaries
// shrink, the rest does not.
// `one_backward`: the passes of a step keep their activations until one backward pass.
std::optional<Advice> halve_batch(const DeviceEvidence& d, bool one_backward);
// Recompute the activations of repeated layers in the backward pass.
std::optional<Advice> checkpoint_layers(const DeviceEvidence& d);
// Compute in float32, where the kernels computed in float64.
std::optional<Advice> single_precision(const DeviceEvidence& d);
// Compute in 16 bits (autocast), where the kernels computed in float32; of float64, the same as
// single_precision().
std::optional<Advice> mixed_precision(const DeviceEvidence& d);
// Shard optimizer state and gradients over the ranks.
std::optional<Advice> shard_states(const DeviceEvidence& d);
// An optimizer that works without parameter-sized temporaries.
std::optional<Advice> fuse_optimizer(const DeviceEvidence& d);
// An optimizer with smaller states.
std::optional<Advice> smaller_states(const DeviceEvidence& d);
// Allocator settings that reduce holes, found by replaying the recorded requests. `devices`: number
// of devices in the whole job.
std::optional<Advice> change_allocator(const DeviceEvidence& d, size_t devices);
// Bytes less reserved at the peak in a replay of the changed requests; none where they cannot be
// replayed.
std::optional<uint64_t> saved_by_change(const DeviceEvidence& d, size_t devices,
                                        const RequestChange& change);
// The same, only if the request that failed fits in the replay.
std::optional<Advice> avoid_failure(const DeviceEvidence& d, size_t devices);
// Whether each line called a model at most once, and memory ran out in such a call: what it keeps
// is of one forward pass, whether a backward pass would have followed or not.
bool fails_in_first_call(const DeviceEvidence& d);
// Whether the last request failed inside the optimizer's step.
bool fails_in_optimizer(const DeviceEvidence& d);

void add(std::vector<Advice>& list, std::optional<Advice> advice);

}  // namespace tidemark
