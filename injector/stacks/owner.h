// Who asked the driver for memory, told from the shared objects on the caller's stack.
//
// The modules lie innermost first, as the unwinder leaves them: libcudart's frame, then cuBLAS's,
// then torch's, then Python's. The first one that means something decides, because the library that
// called the driver is the one that holds the memory, whoever asked it to work.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tidemark::injector {

enum class Owner : uint8_t {
  kUnknown,  // no module on the stack says anything
  kTorch,
  kNccl,
  kCublas,
  kCublasLt,
  kCudnn,
  kCufft,
  kCusolver,
  kCusparse,
  kCurand,
  kTriton,
  kJax,
  kCupy,
  kTensorRt,
  kNvshmem,
  kCusparseLt,
  kCutensor,
  kTensorflow,
  kOnnxRuntime,
  kNcclUser,  // buffers that the program got from ncclMemAlloc: NCCL's call, the program's bytes
  kProgram,   // the program's own code, or a library that is not known here
  kCount,
};

// What one module says about the owner of the memory.
enum class ModuleRole : uint8_t {
  kSilent,       // CUDA driver, runtime, CUPTI, libc, loader, tidemark: look further out
  kInterpreter,  // Python: only its callers' side, never an owner of device memory by itself
  kOwner,
};

struct ModuleVerdict {
  ModuleRole role;
  Owner owner;
};

// Looks at the file name (and, for wheels, at the folder) only; safe in a callback.
ModuleVerdict verdict_of(std::string_view module_path) noexcept;

Owner owner_of(std::span<const std::string_view> module_paths) noexcept;

// The same on verdicts that were computed once per module. The unwinder hands in kNccl for a frame
// in a part of a module that is known to be NCCL's (NCCL linked into libtorch_cuda; modules.h).
Owner owner_of(std::span<const ModuleVerdict> verdicts) noexcept;

// "torch", "nccl", … : the text in the trace. Empty for kUnknown.
std::string_view owner_name(Owner owner) noexcept;

}  // namespace tidemark::injector
