// Modules, kernels, copies, graphs, streams, and their records.
#include "tests/simgpu/fixture.h"

namespace tidemark {
namespace {

constexpr char kPtx[] =
    ".version 6.3\n.target sm_75\n.address_size 64\n"
    ".visible .entry quick() { ret; }\n"
    ".visible .entry slow_90000us() { ret; }\n"
    ".visible .entry endless_60000000us() { ret; }\n";

class Work : public SimGpu {
 protected:
  void SetUp() override {
    SimGpu::SetUp();
    OK(CU(cuModuleLoadData)(&module_, kPtx));
  }
  void TearDown() override {
    OK(CU(cuModuleUnload)(module_));
    SimGpu::TearDown();
  }
  CUfunction function(const char* name) {
    CUfunction f = nullptr;
    EXPECT_EQ(CU(cuModuleGetFunction)(&f, module_, name), CUDA_SUCCESS);
    return f;
  }
  static void launch(CUfunction f, CUstream stream) {
    OK(CU(cuLaunchKernel)(f, 2, 3, 4, 32, 1, 1, 128, stream, nullptr, nullptr));
  }
  static std::vector<probe::Record> kernels() {
    return records(cupti::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  }
  CUmodule module_ = nullptr;
};

TEST_F(Work, ModulesAreReportedWithTheirSize) {
  const probe::Log all = log();
  const auto loaded =
      std::find_if(all.callbacks.begin(), all.callbacks.end(), [](const probe::Callback& c) {
        return c.domain == cupti::CUPTI_CB_DOMAIN_RESOURCE &&
               c.id == cupti::CUPTI_CBID_RESOURCE_MODULE_LOADED;
      });
  ASSERT_NE(loaded, all.callbacks.end());
  EXPECT_EQ(loaded->module_bytes, sizeof(kPtx));
  EXPECT_EQ(taken(), 65536U) << "code takes memory that is no allocation";
  CUfunction f = nullptr;
  EXPECT_EQ(CU(cuModuleGetFunction)(&f, module_, "qui"), CUDA_ERROR_NOT_FOUND);
  CUmodule none = nullptr;
  EXPECT_EQ(CU(cuModuleLoadData)(&none, "no code at all"), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(CU(cuModuleLoad)(&none, "/no/such/file"), CUDA_ERROR_FILE_NOT_FOUND);
}

TEST_F(Work, KernelsLastAsLongAsTheirNameSays) {
  CUstream stream = nullptr;
  OK(CU(cuStreamCreate)(&stream, 0));
  launch(function("slow_90000us"), stream);
  launch(function("quick"), stream);
  EXPECT_EQ(CU(cuStreamQuery)(stream), CUDA_ERROR_NOT_READY);
  OK(CU(cuStreamSynchronize)(stream));
  OK(CU(cuStreamQuery)(stream));
  const auto seen = kernels();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].name, "slow_90000us");
  EXPECT_EQ(seen[0].end_ns - seen[0].start_ns, 90'000'000U);
  EXPECT_EQ(seen[1].end_ns - seen[1].start_ns, 10'000U) << "SIMGPU_KERNEL_US";
  EXPECT_GE(seen[1].start_ns, seen[0].end_ns) << "one after the other";
  EXPECT_EQ(seen[0].stream, seen[1].stream);
  const auto callbacks = calls(cupti::CBID_cuLaunchKernel);
  ASSERT_EQ(callbacks.size(), 4U);
  EXPECT_EQ(callbacks[1].symbol, "slow_90000us");
  EXPECT_EQ(callbacks[1].correlation, seen[0].correlation);
  OK(CU(cuStreamDestroy_v2)(stream));
  EXPECT_EQ(resources(cupti::CUPTI_CBID_RESOURCE_STREAM_CREATED), 1U);
  EXPECT_EQ(resources(cupti::CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING), 1U);
  EXPECT_EQ(CU(cuStreamDestroy_v2)(stream), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Work, RunningKernelsAreFlushedByForceOnly) {
  CUstream stream = nullptr;
  OK(CU(cuStreamCreate)(&stream, 0));
  launch(function("endless_60000000us"), stream);
  EXPECT_TRUE(kernels().empty());
  ASSERT_EQ(CUPTI(cuptiActivityFlushAll)(1), cupti::CUPTI_SUCCESS);
  const auto seen = kernels();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].start_ns, 0U);
  EXPECT_EQ(seen[0].end_ns, 0U);
  OK(CU(cuStreamDestroy_v2)(stream)) << "destroyed while it runs";
}

TEST_F(Work, LaunchesAreChecked) {
  const CUfunction f = function("quick");
  const auto launch = CU(cuLaunchKernel);
  EXPECT_EQ(launch(f, 0, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(f, 1, 1, 1, 64, 64, 1, 0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Work, LibrariesLaunchToo) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction f = nullptr;
  OK(CU(cuLibraryLoadData)(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  OK(CU(cuLibraryGetKernel)(&kernel, library, "quick"));
  OK(CU(cuKernelGetFunction)(&f, kernel));
  const CUlaunchConfig config{1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, 0};
  OK(CU(cuLaunchKernelEx)(&config, f, nullptr, nullptr));
  OK(CU(cuCtxSynchronize)());
  EXPECT_EQ(kernels().size(), 1U);
  OK(CU(cuLibraryUnload)(library));
}

TEST_F(Work, CopiesAndFills) {
  CUdeviceptr p = 0;
  std::vector<char> host(kMiB, 1);
  OK(CU(cuMemAlloc_v2)(&p, kMiB));
  OK(CU(cuMemcpyHtoD_v2)(p, host.data(), host.size()));
  OK(CU(cuMemsetD8Async)(p, 3, 1000, nullptr));
  OK(CU(cuMemcpyDtoH_v2)(host.data(), p, 500));
  EXPECT_EQ(host[0], 0) << "device memory reads as zeros";
  EXPECT_EQ(host[500], 1);
  OK(CU(cuCtxSynchronize)());
  const auto copies = records(cupti::CUPTI_ACTIVITY_KIND_MEMCPY);
  ASSERT_EQ(copies.size(), 2U);
  EXPECT_EQ(copies[0].operation, cupti::CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
  EXPECT_EQ(copies[0].bytes, kMiB);
  EXPECT_GT(copies[0].end_ns, copies[0].start_ns);
  EXPECT_EQ(copies[1].operation, cupti::CUPTI_ACTIVITY_MEMCPY_KIND_DTOH);
  const auto fills = records(cupti::CUPTI_ACTIVITY_KIND_MEMSET);
  ASSERT_EQ(fills.size(), 1U);
  EXPECT_EQ(fills[0].bytes, 1000U);
  OK(CU(cuMemFree_v2)(p));
}

TEST_F(Work, WordsAreFilledAndWritten) {
  void* host = nullptr;
  OK(CU(cuMemAllocHost_v2)(&host, 4096));
  auto* const words = static_cast<uint32_t*>(host);
  const auto p = reinterpret_cast<CUdeviceptr>(host);
  OK(CU(cuMemsetD32Async)(p, 0x01020304, 1024, nullptr));
  EXPECT_EQ(words[1023], 0x01020304U);
  OK(CU(cuStreamWriteValue32_v2)(nullptr, p + 4, 7, 0));
  EXPECT_EQ(words[1], 7U);
  EXPECT_EQ(CU(cuStreamWriteValue32_v2)(nullptr, 0, 7, 0), CUDA_ERROR_INVALID_VALUE);
  OK(CU(cuCtxSynchronize)());
  const auto fills = records(cupti::CUPTI_ACTIVITY_KIND_MEMSET);
  ASSERT_EQ(fills.size(), 1U);
  EXPECT_EQ(fills[0].bytes, 4096U);
  OK(CU(cuMemFreeHost)(host));
}

uint64_t graph_memory(CUgraphMem_attribute attribute) {
  uint64_t value = 0;
  EXPECT_EQ(CU(cuDeviceGetGraphMemAttribute)(0, attribute, &value), CUDA_SUCCESS);
  return value;
}

TEST_F(Work, GraphMemoryIsBackedByTheLaunch) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode node = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  params.bytesize = 3 * kMiB;
  OK(CU(cuGraphCreate)(&graph, 0));
  const size_t before = taken();
  OK(CU(cuGraphAddMemAllocNode)(&node, graph, nullptr, 0, &params));
  EXPECT_NE(params.dptr, 0U);
  EXPECT_EQ(one_call(cupti::CBID_cuGraphAddMemAllocNode).address, params.dptr);
  OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
  EXPECT_EQ(taken(), before) << "an address, no memory";
  OK(CU(cuGraphLaunch)(exec, nullptr));
  EXPECT_EQ(taken() - before, 32 * kMiB) << "in chunks";
  EXPECT_EQ(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 4 * kMiB);
  const auto memory = records(cupti::CUPTI_ACTIVITY_KIND_MEMORY2);
  ASSERT_EQ(memory.size(), 2U) << "the chunk and the allocation";
  EXPECT_EQ(memory[0].bytes, 32 * kMiB);
  EXPECT_EQ(memory[0].pool, 0U);
  EXPECT_EQ(memory[1].address, params.dptr);
  EXPECT_EQ(memory[1].bytes, 3 * kMiB);
  EXPECT_NE(memory[1].pool, 0U);
  EXPECT_EQ(CU(cuGraphLaunch)(exec, nullptr), CUDA_ERROR_INVALID_VALUE) << "not freed yet";
  OK(CU(cuMemFreeAsync)(params.dptr, nullptr));
  EXPECT_EQ(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0U);
  EXPECT_EQ(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 32 * kMiB) << "kept";
  OK(CU(cuGraphLaunch)(exec, nullptr));
  EXPECT_EQ(taken() - before, 32 * kMiB) << "used again";
  OK(CU(cuMemFreeAsync)(params.dptr, nullptr));
  OK(CU(cuDeviceGraphMemTrim)(0));
  EXPECT_EQ(taken(), before);
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuGraphDestroy)(graph));
}

TEST_F(Work, CaptureTurnsCallsIntoNodes) {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUdeviceptr p = 0;
  OK(CU(cuStreamCreate)(&stream, 0));
  EXPECT_EQ(CU(cuStreamBeginCapture_v2)(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  const size_t before = taken();
  OK(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(CU(cuMemAllocAsync)(&p, kMiB, stream));
  launch(function("quick"), stream);
  OK(CU(cuMemFreeAsync)(p, stream));
  OK(CU(cuStreamEndCapture)(stream, &graph));
  EXPECT_EQ(taken(), before);
  EXPECT_EQ(resources(cupti::CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED), 3U);
  OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
  for (int i = 0; i < 2; ++i) OK(CU(cuGraphLaunch)(exec, stream)) << "it frees what it allocates";
  OK(CU(cuStreamSynchronize)(stream));
  const auto seen = kernels();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_NE(seen[0].graph, 0U);
  EXPECT_EQ(taken() - before, 32 * kMiB);
  OK(CU(cuDeviceGraphMemTrim)(0));
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuGraphDestroy)(graph));
  OK(CU(cuStreamDestroy_v2)(stream));
}

}  // namespace
}  // namespace tidemark
