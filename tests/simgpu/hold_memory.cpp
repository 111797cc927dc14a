// A process that holds memory of a simulated card until its standard input closes.
//
// Usage: hold_memory DEVICE MEBIBYTES [ipc handle to open, in hexadecimal]
// Prints "ready", or "failed CODE".
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "abi/cuda_functions.h"

namespace {

using namespace tidemark::cuda;  // NOLINT

template <typename Function>
Function find(const char* name) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<Function>(dlsym(library, name));
}

CUresult hold(int device, size_t bytes, const std::string& ipc) {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  CUresult result = find<cuInit_fn>("cuInit")(0);
  if (result != CUDA_SUCCESS) return result;
  result = find<cuDevicePrimaryCtxRetain_fn>("cuDevicePrimaryCtxRetain")(&context, device);
  if (result != CUDA_SUCCESS) return result;
  find<cuCtxSetCurrent_fn>("cuCtxSetCurrent")(context);
  if (!ipc.empty()) {
    CUipcMemHandle handle{};
    for (size_t i = 0; i < sizeof(handle.reserved); ++i) {
      handle.reserved[i] = static_cast<char>(std::stoi(ipc.substr(2 * i, 2), nullptr, 16));
    }
    result = find<cuIpcOpenMemHandle_v2_fn>("cuIpcOpenMemHandle_v2")(&memory, handle, 1);
    if (result != CUDA_SUCCESS) return result;
    CUdeviceptr base = 0;
    size_t size = 0;
    result = find<cuMemGetAddressRange_v2_fn>("cuMemGetAddressRange_v2")(&base, &size, memory);
    std::printf("mapped %zu\n", size);
    return result;
  }
  return find<cuMemAlloc_v2_fn>("cuMemAlloc_v2")(&memory, bytes);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const size_t bytes = static_cast<size_t>(std::atoi(argv[2])) << 20;
  const CUresult result = hold(std::atoi(argv[1]), bytes, argc > 3 ? argv[3] : "");
  if (result == CUDA_SUCCESS) {
    std::printf("ready\n");
  } else {
    std::printf("failed %u\n", static_cast<unsigned>(result));
  }
  std::fflush(stdout);
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}
