// Listens to the driver: every call that takes or gives memory becomes a DriverEvent row.
//
// The callback runs on the host's threads, inside the host's driver call. It reads parameters,
// unwinds (calls that take memory and loads of code only), records, returns: no CUDA call
// (forbidden there), no lock, no allocation. What needs a query is left to the task thread
// (driver_queries.h).
#pragma once

#include "injector/cupti/loader.h"
#include "injector/process/options.h"

namespace tidemark::injector {

// Subscribes and enables exactly the callbacks that are used. False when another tool holds CUPTI
// or CUPTI refuses: said once on stderr and in the trace. `functions` must live on.
bool start_callbacks(const CuptiFunctions& functions, const Options& options) noexcept;

// Gives CUPTI back, so that another tool (torch.profiler) can have it. Not in a callback.
void stop_callbacks() noexcept;

}  // namespace tidemark::injector
