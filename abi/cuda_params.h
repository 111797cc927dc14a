// Parameters of driver functions as CUPTI passes them to a callback (functionParams).
//
// The members are the parameters of the function, in order and by name, so an out-parameter is a
// pointer: read it at EXIT, and only if the call succeeded. The `_ptsz` and `_ptds` variants have
// the layout of their function.
#pragma once

#include "abi/cuda_execution_params.h"
#include "abi/cuda_memory_params.h"
