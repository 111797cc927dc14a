// NVTX: ranges and marks that a program, or a library in it, puts on its timeline.
//
// NVTX is a header compiled into its users. At its first call it loads the library that
// NVTX_INJECTION64_PATH names and calls InitializeInjectionNvtx2 to fill in its function pointers;
// without such a library its functions do nothing. CUPTI is not involved.
#pragma once

#include <cstdint>

namespace tidemark::injector {

// Returns tables by number.
using NvtxExportTable = const void* (*)(uint32_t);

// Fills in the functions that we record. False if NVTX offers no table.
bool install_nvtx(NvtxExportTable export_table) noexcept;

}  // namespace tidemark::injector
