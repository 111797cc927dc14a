// Which refusals of the driver the framework's allocator or a library handled by itself, and which
// failures of the allocator an operator did.
//
// An allocator whose request the driver refuses frees its cache and tries again. If that helps,
// nobody notices; if not, it reports a failure of its own. Either way the program saw at most one
// error, so the refusals are no errors of their own. A library falls back to a smaller workspace or
// another algorithm, or tells the program: if the process allocates again, the refusal did not end
// it. An operator of the framework asks the allocator for the workspace of one algorithm after the
// other: several failures from one place with nothing between them are at most one error, and one
// that a backward pass survives is none.
#pragma once

#include "analysis/load/trace_model.h"

namespace tidemark {

void set_aside_handled_refusals(ProcessModel& process);

}  // namespace tidemark
