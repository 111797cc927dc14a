// The parameters of driver functions as CUPTI hands them to a callback (functionParams).
//
// A member is a parameter of the function, in order and by name, so an out-parameter is a pointer:
// read through it at EXIT, and only when the call succeeded. The `_ptsz` and `_ptds` variants have
// the layout of their function.
#pragma once

#include "abi/cuda_execution_params.h"
#include "abi/cuda_memory_params.h"
