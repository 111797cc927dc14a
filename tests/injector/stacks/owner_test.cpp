#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "injector/stacks/owner.h"

namespace tidemark::injector {
namespace {

using Paths = std::vector<std::string_view>;

std::string_view owner_name_of(const Paths& paths) {
  return owner_name(owner_of(paths));
}

constexpr std::string_view kPython = "/usr/bin/python3.12";
constexpr std::string_view kCudart =
    "/venv/lib/python3.12/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12";
constexpr std::string_view kTorchCuda =
    "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so";
constexpr std::string_view kC10Cuda = "/venv/lib/python3.12/site-packages/torch/lib/libc10_cuda.so";
constexpr std::string_view kTorchPython =
    "/venv/lib/python3.12/site-packages/torch/lib/libtorch_python.so";

TEST(CaptureOwner, CachingAllocatorOwnsItsSegments) {
  EXPECT_EQ(owner_name_of({"/opt/libtidemark.so", "/usr/lib/x86_64-linux-gnu/libcupti.so.13",
                           "/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06", kCudart, kC10Cuda,
                           kTorchCuda, kTorchPython, kPython, "/lib/x86_64-linux-gnu/libc.so.6"}),
            "torch");
}

TEST(CaptureOwner, TheLibraryThatCalledTheDriverWinsOverItsCallers) {
  EXPECT_EQ(owner_name_of({"/usr/lib/libcuda.so.1",
                           "/venv/lib/python3.12/site-packages/nvidia/cublas/lib/libcublas.so.12",
                           kTorchCuda, kTorchPython, kPython}),
            "cublas");
  EXPECT_EQ(owner_name_of({"/usr/local/cuda/lib64/libcublasLt.so.13", kTorchCuda}), "cublasLt");
  EXPECT_EQ(owner_name_of({"/x/nvidia/nccl/lib/libnccl.so.2", kTorchCuda, kPython}), "nccl");
}

TEST(CaptureOwner, NamesEveryKnownLibrary) {
  EXPECT_EQ(owner_name_of({"/x/libcudnn_engines_precompiled.so.9"}), "cudnn");
  EXPECT_EQ(owner_name_of({"/x/libcudnn.so.9"}), "cudnn");
  EXPECT_EQ(owner_name_of({"/x/libcufft.so.12"}), "cufft");
  EXPECT_EQ(owner_name_of({"/x/libcusolver.so.11"}), "cusolver");
  EXPECT_EQ(owner_name_of({"/x/libcusolverMg.so.11"}), "cusolver");
  EXPECT_EQ(owner_name_of({"/x/libcusparse.so.12"}), "cusparse");
  EXPECT_EQ(owner_name_of({"/x/libcusparseLt.so.0"}), "cusparseLt");
  EXPECT_EQ(owner_name_of({"/x/libcurand.so.10"}), "curand");
  EXPECT_EQ(owner_name_of({"/x/libnvinfer.so.10"}), "tensorrt");
  EXPECT_EQ(owner_name_of({"/x/libnvinfer_plugin.so.10"}), "tensorrt");
  EXPECT_EQ(owner_name_of({"/x/libnvshmem_host.so.3"}), "nvshmem");
  EXPECT_EQ(owner_name_of({"/x/site-packages/triton/_C/libtriton.so"}), "triton");
  EXPECT_EQ(owner_name_of({"/home/me/.triton/cache/AB12/cuda_utils.cpython-312.so"}), "triton");
  EXPECT_EQ(owner_name_of({"/x/site-packages/jaxlib/libjax_common.so"}), "jax");
  EXPECT_EQ(owner_name_of({"/x/site-packages/jax_plugins/xla_cuda12/xla_cuda_plugin.so"}), "jax");
  EXPECT_EQ(owner_name_of({"/x/site-packages/cupy/_core/core.cpython-312-x86_64-linux-gnu.so"}),
            "cupy");
  EXPECT_EQ(owner_name_of({"/x/site-packages/cupy_backends/cuda/api/driver.cpython-312.so"}),
            "cupy");
}

TEST(CaptureOwner, AnythingElseIsTheProgram) {
  EXPECT_EQ(owner_name_of({"/usr/lib/libcuda.so.1", "/opt/sim/bin/simulate", "/lib/libc.so.6"}),
            "program");
  EXPECT_EQ(owner_name_of({kCudart, "/x/site-packages/flash_attn_2_cuda.cpython-312.so",
                           kTorchPython, kPython}),
            "program");
}

TEST(CaptureOwner, ScriptsThatCallThroughCtypesAreTheProgram) {
  EXPECT_EQ(owner_name_of({"/usr/lib/libcuda.so.1", "/usr/lib/libffi.so.8",
                           "/usr/lib/python3.12/lib-dynload/_ctypes.cpython-312.so", kPython,
                           "/lib/libc.so.6"}),
            "program");
}

TEST(CaptureOwner, NothingIsInventedWithoutAKnownModule) {
  EXPECT_EQ(owner_of(Paths{}), Owner::kUnknown);
  EXPECT_EQ(owner_of(Paths{"/usr/lib/libcuda.so.1", "/lib/libc.so.6", "", "linux-vdso.so.1"}),
            Owner::kUnknown);
  EXPECT_EQ(owner_name(Owner::kUnknown), "");
}

TEST(CaptureOwner, VerdictsAndPathsAgree) {
  const Paths paths = {kCudart, "/x/libcublas.so.12", kTorchCuda};
  std::vector<ModuleVerdict> verdicts;
  for (const auto path : paths) verdicts.push_back(verdict_of(path));
  EXPECT_EQ(owner_of(verdicts), owner_of(paths));
}

TEST(CaptureOwner, EveryOwnerHasAName) {
  for (int i = 1; i < static_cast<int>(Owner::kCount); ++i) {
    EXPECT_FALSE(owner_name(static_cast<Owner>(i)).empty()) << i;
  }
  EXPECT_EQ(owner_name(Owner::kProgram), "program");
  EXPECT_EQ(owner_name(Owner::kNvshmem), "nvshmem");
}

}  // namespace
}  // namespace tidemark::injector
