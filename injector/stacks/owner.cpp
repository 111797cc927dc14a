#include "injector/stacks/owner.h"

#include <array>
#include <cstddef>

namespace tidemark::injector {
namespace {

struct NameRule {
  std::string_view prefix;  // of the file name
  ModuleVerdict verdict;
};

constexpr ModuleVerdict silent() {
  return {ModuleRole::kSilent, Owner::kUnknown};
}
constexpr ModuleVerdict interpreter() {
  return {ModuleRole::kInterpreter, Owner::kProgram};
}
constexpr ModuleVerdict owned(Owner owner) {
  return {ModuleRole::kOwner, owner};
}

// The first match wins, so a longer name comes before its prefix (cublasLt, cusparseLt).
constexpr NameRule kByFileName[] = {
    // The CUDA driver, its compilers, the runtime and tools: they act for their caller.
    {"libcuda.so", silent()},
    {"libcudart", silent()},
    {"libcudadebugger", silent()},
    {"libcupti", silent()},
    {"libnvidia-", silent()},
    {"libnvrtc", silent()},
    {"libnvJitLink", silent()},
    {"libnvptxcompiler", silent()},
    {"libnvperf_", silent()},
    {"libnvToolsExt", silent()},
    {"libtidemark", silent()},
    // The C and C++ runtime: thread starts, std::function, std::call_once, OpenMP teams.
    {"libc.so", silent()},
    {"libc-", silent()},
    {"libm.so", silent()},
    {"libdl.so", silent()},
    {"libpthread", silent()},
    {"ld-linux", silent()},
    {"ld-musl", silent()},
    {"libstdc++", silent()},
    {"libgcc_s", silent()},
    {"libgomp", silent()},
    {"libomp.so", silent()},
    {"libiomp5", silent()},
    {"libasan", silent()},
    {"libtsan", silent()},
    {"libubsan", silent()},
    {"linux-vdso", silent()},
    {"[vdso]", silent()},
    // Calls through ctypes or the interpreter belong to the script.
    {"libpython", interpreter()},
    {"python", interpreter()},
    {"libffi", interpreter()},
    {"_ctypes.", interpreter()},
    {"_cffi_backend", interpreter()},

    {"libnccl", owned(Owner::kNccl)},
    {"libcublasLt", owned(Owner::kCublasLt)},
    {"libcublas", owned(Owner::kCublas)},
    {"libnvblas", owned(Owner::kCublas)},
    {"libcudnn", owned(Owner::kCudnn)},
    {"libcufft", owned(Owner::kCufft)},
    {"libcusolver", owned(Owner::kCusolver)},
    {"libcusparseLt", owned(Owner::kCusparseLt)},
    {"libcusparse", owned(Owner::kCusparse)},
    {"libcurand", owned(Owner::kCurand)},
    {"libcutensor", owned(Owner::kCutensor)},
    {"libnvinfer", owned(Owner::kTensorRt)},
    {"libnvonnxparser", owned(Owner::kTensorRt)},
    {"libnvshmem", owned(Owner::kNvshmem)},
    {"nvshmem_", owned(Owner::kNvshmem)},
    {"libtriton", owned(Owner::kTriton)},
    {"__triton_launcher", owned(Owner::kTriton)},
    {"libtorch", owned(Owner::kTorch)},
    {"libc10", owned(Owner::kTorch)},
    {"libjax", owned(Owner::kJax)},
    {"libxla", owned(Owner::kJax)},
    {"xla_extension", owned(Owner::kJax)},
    {"xla_cuda_plugin", owned(Owner::kJax)},
    {"pjrt_", owned(Owner::kJax)},
    {"libtensorflow", owned(Owner::kTensorflow)},
    {"_pywrap_tensorflow", owned(Owner::kTensorflow)},
    {"libonnxruntime", owned(Owner::kOnnxRuntime)},
    {"onnxruntime_", owned(Owner::kOnnxRuntime)},
};

struct FolderRule {
  std::string_view part;  // of the path
  ModuleVerdict verdict;
};

// For modules whose file name is not enough (Cython and pybind modules of a package).
constexpr FolderRule kByFolder[] = {
    {"/.triton/", owned(Owner::kTriton)},
    {"/triton/", owned(Owner::kTriton)},
    {"/cupy/", owned(Owner::kCupy)},
    {"/cupy_backends/", owned(Owner::kCupy)},
    {"/jaxlib/", owned(Owner::kJax)},
    {"/jax_plugins/", owned(Owner::kJax)},
    {"/site-packages/torch/", owned(Owner::kTorch)},
    {"/dist-packages/torch/", owned(Owner::kTorch)},
    {"/cuda/bindings/", interpreter()},  // cuda-python: called by the script
    {"/lib-dynload/", interpreter()},
};

std::string_view file_name_of(std::string_view path) noexcept {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

constexpr std::array<std::string_view, static_cast<size_t>(Owner::kCount)> kNames = {
    "",         "torch",      "nccl",     "cublas",     "cublasLt",    "cudnn",     "cufft",
    "cusolver", "cusparse",   "curand",   "triton",     "jax",         "cupy",      "tensorrt",
    "nvshmem",  "cusparseLt", "cutensor", "tensorflow", "onnxruntime", "nccl.user", "program"};

}  // namespace

ModuleVerdict verdict_of(std::string_view module_path) noexcept {
  const std::string_view name = file_name_of(module_path);
  if (name.empty()) return silent();
  for (const NameRule& rule : kByFileName) {
    if (name.starts_with(rule.prefix)) return rule.verdict;
  }
  for (const FolderRule& rule : kByFolder) {
    if (module_path.find(rule.part) != std::string_view::npos) return rule.verdict;
  }
  return owned(Owner::kProgram);
}

Owner owner_of(std::span<const ModuleVerdict> verdicts) noexcept {
  Owner fallback = Owner::kUnknown;
  for (const ModuleVerdict& verdict : verdicts) {
    if (verdict.role == ModuleRole::kOwner) return verdict.owner;
    if (verdict.role == ModuleRole::kInterpreter) fallback = Owner::kProgram;
  }
  return fallback;
}

Owner owner_of(std::span<const std::string_view> module_paths) noexcept {
  Owner fallback = Owner::kUnknown;
  for (const std::string_view path : module_paths) {
    const ModuleVerdict verdict = verdict_of(path);
    if (verdict.role == ModuleRole::kOwner) return verdict.owner;
    if (verdict.role == ModuleRole::kInterpreter) fallback = Owner::kProgram;
  }
  return fallback;
}

std::string_view owner_name(Owner owner) noexcept {
  const auto index = static_cast<size_t>(owner);
  return index < kNames.size() ? kNames[index] : std::string_view();
}

}  // namespace tidemark::injector
