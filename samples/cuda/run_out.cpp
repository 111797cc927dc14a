// Allocates until the card is full: 1 GiB at a time, then half of it when that fails, and so on
// down to 2 MiB.
//
// tidemark should find: each failed request with its size, in the order printed below, and the card
// full at each of them (capacity: defragmenting would gain nothing); all memory freed afterwards.
#include <vector>

#include "samples/cuda/driver.h"

int main() {
  using namespace tidemark::samples;
  constexpr size_t kFirstBytes = size_t{1} << 30;
  constexpr size_t kLastBytes = size_t{2} << 20;
  const Driver cu;
  cu.check(cu.cuInit(0), "cuInit");
  cu.use_device(0);
  std::vector<CUdeviceptr> taken;
  std::vector<size_t> failed;
  size_t taken_bytes = 0;
  for (size_t bytes = kFirstBytes; bytes >= kLastBytes;) {
    CUdeviceptr memory = 0;
    const CUresult result = cu.cuMemAlloc_v2(&memory, bytes);
    if (result == CUDA_SUCCESS) {
      taken.push_back(memory);
      taken_bytes += bytes;
      continue;
    }
    if (result != CUDA_ERROR_OUT_OF_MEMORY) cu.check(result, "cuMemAlloc");
    failed.push_back(bytes);
    bytes /= 2;
  }
  for (CUdeviceptr memory : taken) cu.check(cu.cuMemFree_v2(memory), "cuMemFree");
  std::printf("{\"sample\":\"run_out\",\"taken_bytes\":%zu,\"allocations\":%zu,\"failed_bytes\":[",
              taken_bytes, taken.size());
  for (size_t i = 0; i < failed.size(); ++i) std::printf("%s%zu", i == 0 ? "" : ",", failed[i]);
  std::printf("]}\n");
  return 0;
}
