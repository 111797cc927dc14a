// One rank of a job on simulated cards that communicates through the stand-in for NCCL.
// Usage: nccl_host STEPS [--extra MB] [--die-at STEP] [--guilty RANK]
// Each step: an all-reduce, a transfer to the next rank. `--extra` allocates that much more memory
// per step; `--die-at` ends the process at that step without a message, as an error would;
// `--guilty` applies both to one rank only.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "samples/cuda/driver.h"
#include "simgpu/nccl.h"

namespace {

int number(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names) {
    if (const char* text = std::getenv(name); text != nullptr) return std::atoi(text);
  }
  return otherwise;
}

int option(int argc, char** argv, const char* name, int otherwise) {
  for (int i = 2; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], name) == 0) return std::atoi(argv[i + 1]);
  }
  return otherwise;
}

// Calls the library found at run time, as a framework does.
struct Nccl {
  void* library = dlopen("libnccl.so.2", RTLD_NOW);
#define TIDEMARK_NCCL_CALL(NAME) decltype(&::NAME) NAME = find<decltype(&::NAME)>(#NAME)
  TIDEMARK_NCCL_CALL(simgpuNcclCommInit);
  TIDEMARK_NCCL_CALL(ncclAllReduce);
  TIDEMARK_NCCL_CALL(ncclSend);
  TIDEMARK_NCCL_CALL(ncclRecv);
  TIDEMARK_NCCL_CALL(ncclMemAlloc);
  TIDEMARK_NCCL_CALL(ncclCommDestroy);
  TIDEMARK_NCCL_CALL(simgpuNcclProfilerVersion);
#undef TIDEMARK_NCCL_CALL

  template <typename F>
  F find(const char* name) const {
    if (library == nullptr) tidemark::samples::fail("libnccl.so.2", dlerror());
    return reinterpret_cast<F>(dlsym(library, name));
  }
};

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 3;
  const int rank = number({"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}, 0);
  const bool guilty = option(argc, argv, "--guilty", rank) == rank;
  const int extra_mb = guilty ? option(argc, argv, "--extra", 0) : 0;
  const int die_at = guilty ? option(argc, argv, "--die-at", -1) : -1;
  const int ranks = number({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}, 1);

  const tidemark::samples::Driver cu;
  cu.check(cu.cuInit(0), "cuInit");
  cu.use_device(0);
  const Nccl nccl;
  ncclComm* comm = nullptr;
  nccl.simgpuNcclCommInit(&comm, "world", 0xabcdef0123456789, ranks, rank);
  tidemark::cuda::CUdeviceptr tensor = 0;
  cu.check(cu.cuMemAlloc_v2(&tensor, 4 << 20), "cuMemAlloc");
  auto* const memory = reinterpret_cast<void*>(tensor);
  for (int step = 0; step < steps; ++step) {
    if (step == die_at) _exit(3);
    if (extra_mb > 0) {
      tidemark::cuda::CUdeviceptr kept = 0;
      cu.check(cu.cuMemAlloc_v2(&kept, static_cast<size_t>(extra_mb) << 20), "cuMemAlloc");
    }
    nccl.ncclAllReduce(memory, memory, 1000, 7, 0, comm, nullptr);
    if (rank % 2 == 0) {
      nccl.ncclSend(memory, 10, 7, rank + 1, comm, nullptr);
    } else {
      nccl.ncclRecv(memory, 10, 7, rank - 1, comm, nullptr);
    }
  }
  void* user = nullptr;
  nccl.ncclMemAlloc(&user, 3 << 20);
  cu.check(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  std::printf("rank %d of %d, profiler v%d\n", rank, ranks, nccl.simgpuNcclProfilerVersion());
  nccl.ncclCommDestroy(comm);
  return 0;
}
