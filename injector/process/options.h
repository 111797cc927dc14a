// What the environment asks of the injector. Read once, in InitializeInjection.
//
// A value that cannot be understood keeps the default: a typing error in a job script must never
// stop the job. `Options::complaint` then names the variable, for the one line on stderr.
#pragma once

#include <cstdint>

#include "injector/process/environment.h"  // process_environment, the usual lookup

namespace tidemark::injector {

enum class StackMode : uint8_t { kNone, kPython, kNative, kAll };

struct Options {
  const char* out = nullptr;    // TIDEMARK_OUT; null: the recorder's default
  const char* chain = nullptr;  // TIDEMARK_CHAIN: an injection library to start as well
  const char* complaint = nullptr;
  bool arm = false;     // TIDEMARK_ARM: wait to be attached to
  bool control = true;  // TIDEMARK_CONTROL: listen to commands; armed processes always do
  StackMode stacks = StackMode::kPython;  // TIDEMARK_STACKS=none|python|native|all
  bool kernels = true;                    // TIDEMARK_KERNELS
  bool copies = false;                    // TIDEMARK_COPIES: memcpy and memset too
  bool nccl = true;                       // TIDEMARK_NCCL
  bool torch = true;                      // TIDEMARK_TORCH
  bool torch_bridge = true;               // TIDEMARK_BRIDGE
  bool annotations = true;                // TIDEMARK_ANNOTATIONS: record_function
  bool optimizer = true;                  // TIDEMARK_OPTIMIZER: steps, and what its tensors are
  bool python_gil = false;                // TIDEMARK_PYTHON_GIL: the slow way to Python's frames
  bool cupti = true;                      // TIDEMARK_CUPTI
  uint32_t nvml_hz = 10;                  // TIDEMARK_NVML_HZ, 0: off; at most kMaxNvmlHz
  uint32_t buffer_mb = 64;                // TIDEMARK_BUFFER_MB

  // Driver allocations are few: they get a native stack unless there shall be none at all.
  bool driver_stacks() const noexcept { return stacks != StackMode::kNone; }
};

// Faster polling makes cuMemAlloc of the job wait for the resource manager's lock.
inline constexpr uint32_t kMaxNvmlHz = 50;

// "none", "python", "native", "all".
const char* stack_mode_name(StackMode mode) noexcept;

using EnvironmentLookup = const char* (*)(const char* name);

Options read_options(EnvironmentLookup lookup) noexcept;

}  // namespace tidemark::injector
