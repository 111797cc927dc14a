// NVTX: the ranges and marks that a program, or a library in it, puts on its own timeline.
//
// NVTX is a header inside whoever uses it. At its first call it loads the library that
// NVTX_INJECTION64_PATH names and asks InitializeInjectionNvtx2 to fill in its function pointers;
// without one, its functions do nothing. CUPTI is not involved.
#pragma once

#include <cstdint>

namespace tidemark::injector {

// const void* (*)(uint32_t): hands out tables by number.
using NvtxExportTable = const void* (*)(uint32_t);

// Fills in the functions that become rows. False when NVTX offers no table.
bool install_nvtx(NvtxExportTable export_table) noexcept;

}  // namespace tidemark::injector
