// The environment of the process, as it was when the driver was first used.
//
// CUPTI and NVML run on threads of a tool, while the program may call setenv(): there getenv()
// would read freed memory. So they look up their variables in the driver's copy, through its
// TracingTable.
#pragma once

namespace tidemark::simgpu {

using Lookup = const char* (*)(const char* name);  // nullptr: the variable is not set

// A Lookup: in libcuda.so.1 only.
const char* variable(const char* name);

}  // namespace tidemark::simgpu
