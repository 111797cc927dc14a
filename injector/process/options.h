// The injector's options, from environment variables. Read once, in InitializeInjection.
//
// A value that cannot be parsed keeps the default: a typo in a job script must never stop the job.
// `Options::complaint` then names the variable, for the one line on stderr.
#pragma once

#include <cstdint>

#include "injector/process/environment.h"  // process_environment, the usual lookup
#include "proto/base/units.h"

namespace tidemark::injector {

enum class StackMode : uint8_t { kNone, kPython, kNative, kAll };

struct Options {
  const char* out = nullptr;             // TIDEMARK_OUT; null: default of the recorder
  const char* ring_directory = nullptr;  // TIDEMARK_RING_DIR
  const char* chain = nullptr;           // TIDEMARK_CHAIN: another injection library to start
  const char* complaint = nullptr;
  bool arm = false;                       // TIDEMARK_ARM: wait to be attached to
  bool control = true;                    // TIDEMARK_CONTROL: accept commands; always on when armed
  StackMode stacks = StackMode::kPython;  // TIDEMARK_STACKS=none|python|native|all
  bool kernels = true;                    // TIDEMARK_KERNELS
  bool copies = false;                    // TIDEMARK_COPIES: memcpy and memset too
  bool nccl = true;                       // TIDEMARK_NCCL
  bool torch = true;                      // TIDEMARK_TORCH
  bool torch_bridge = true;               // TIDEMARK_BRIDGE
  bool compile_bridge = true;             // not with TIDEMARK_BRIDGE=prebuilt
  bool annotations = true;                // TIDEMARK_ANNOTATIONS: record_function
  bool optimizer = true;                  // TIDEMARK_OPTIMIZER: steps, and tensor categories
  bool modules = true;                    // TIDEMARK_MODULES: which nn.Module runs
  bool python_gil = false;                // TIDEMARK_PYTHON_GIL: slow, takes the GIL
  bool cupti = true;                      // TIDEMARK_CUPTI
  uint32_t nvml_hz = 10;                  // TIDEMARK_NVML_HZ, 0: off; at most kMaxNvmlHz
  uint32_t buffer_mb = 64;                // TIDEMARK_BUFFER_MB
  uint32_t overhead = 20'000;             // TIDEMARK_OVERHEAD=2%, in millionths; 0: no budget
  KeepLimits keep;                        // TIDEMARK_KEEP=10m,512MiB: only the last stretch
  uint64_t seal_above_bytes = 0;          // TIDEMARK_SEAL_ABOVE: of a device's reserved memory
  int seal_signal = 0;                    // TIDEMARK_SEAL_SIGNAL=USR2

  // Driver allocations are rare, so they get a native stack unless stacks are off altogether.
  bool driver_stacks() const noexcept { return stacks != StackMode::kNone; }
};

// Polling faster makes the job's cuMemAlloc wait for the lock of the resource manager.
inline constexpr uint32_t kMaxNvmlHz = 50;

// "none", "python", "native", "all".
const char* stack_mode_name(StackMode mode) noexcept;

using EnvironmentLookup = const char* (*)(const char* name);

Options read_options(EnvironmentLookup lookup) noexcept;

}  // namespace tidemark::injector
