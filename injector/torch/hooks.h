// Observes PyTorch's caching allocator, if the process has one.
//
// Tier 1 needs nothing: libc10_cuda.so calls libc10.so to report every allocation to the active
// profiler, and that call is redirected. Tier 2 is the bridge (bridge/): taken from the cache or
// compiled on its own thread, and attached when the next allocation begins.
#pragma once

#include "injector/process/options.h"

namespace tidemark::injector {

// Any thread, any number of times: does what is possible by now. Cheap once everything is set up,
// and while there is no torch.
void look_for_torch() noexcept;

// Task thread: sets up what needs Python code to run.
void look_for_torch_phases() noexcept;

// `late`: the allocator may be in use already; await_torch_state() was called.
void start_torch(const Options& options, bool late) noexcept;
// Removes the redirections. The bridge stays, silent: the allocator cannot detach it.
void stop_torch() noexcept;
void reset_torch() noexcept;  // in a forked child

}  // namespace tidemark::injector
