// The owner of driver memory, derived from the shared objects on the caller's stack.
//
// Modules are ordered innermost first, as the unwinder finds them: libcudart, then cuBLAS, then
// torch, then Python. The first one that identifies an owner decides, because the library that
// called the driver is the one that holds the memory, no matter which code called that library.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tidemark::injector {

enum class Owner : uint8_t {
  kUnknown,  // no module on the stack identifies an owner
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
  kNcclUser,  // buffers that the program allocated with ncclMemAlloc
  kProgram,   // the program itself, or a library not listed here
  kCount,
};

// What one module says about the owner.
enum class ModuleRole : uint8_t {
  kSilent,       // CUDA driver, runtime, CUPTI, libc, loader, tidemark: look at the caller
  kInterpreter,  // Python: the program, unless an owner is found further out
  kOwner,
};

struct ModuleVerdict {
  ModuleRole role;
  Owner owner;
};

// Checks only the file name (and, for wheels, the folder); safe in a callback.
ModuleVerdict verdict_of(std::string_view module_path) noexcept;

Owner owner_of(std::span<const std::string_view> module_paths) noexcept;

// The same for verdicts that were computed once per module. The unwinder passes kNccl for a frame
// in the part of a module that is known to be NCCL (linked into libtorch_cuda; modules.h).
Owner owner_of(std::span<const ModuleVerdict> verdicts) noexcept;

// The name in the trace: "torch", "nccl", … Empty for kUnknown.
std::string_view owner_name(Owner owner) noexcept;

}  // namespace tidemark::injector
