// Listens to PyTorch's caching allocator, if the process has one.
//
// Tier 1 needs nothing: libc10_cuda.so calls libc10.so to report every allocation to whatever
// profiler runs, and that call is redirected. Tier 2 is the bridge (bridge/): taken from the cache
// or compiled on a thread of its own, attached when the next allocation begins.
#pragma once

#include "injector/process/options.h"

namespace tidemark::injector {

// Any thread, any number of times: does what can be done by now. Cheap once all is done, and while
// there is no torch.
void look_for_torch() noexcept;

// Task thread: what needs Python to run something.
void look_for_torch_phases() noexcept;

// `late`: the allocator may be at work already; await_torch_state() was called.
void start_torch(const Options& options, bool late) noexcept;
// Takes the redirections back. The bridge stays, silent: the allocator has no way to detach it.
void stop_torch() noexcept;
void reset_torch() noexcept;  // in a forked child

}  // namespace tidemark::injector
