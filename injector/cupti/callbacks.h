// Subscribes to driver calls: every call that allocates or frees memory becomes a DriverEvent row.
//
// The callback runs on the host's threads, inside the host's driver call. It reads the parameters,
// unwinds (only for allocations, new contexts and loaded code), records and returns. It makes no
// CUDA call (forbidden there) and allocates nothing. It takes no lock, except after a library was
// loaded: then the list of modules is read again (stacks/modules.h) and PyTorch is looked for
// (torch/hooks.h). Anything that needs a query is left to the task thread
// (sampling/driver_queries.h).
#pragma once

#include "injector/cupti/subscription.h"
#include "injector/process/options.h"

namespace tidemark::injector {

// Subscribes and enables exactly the callbacks that we use. False when another tool holds CUPTI or
// CUPTI refuses, which is reported once on stderr and in the trace. `functions` must outlive the
// subscription.
bool start_callbacks(const CuptiFunctions& functions, const Options& options) noexcept;

// While callbacks are on.
const CuptiSubscription& cupti_subscription() noexcept;

// Unsubscribes, so that another tool (torch.profiler) can use CUPTI. Not in a callback.
void stop_callbacks() noexcept;

}  // namespace tidemark::injector
