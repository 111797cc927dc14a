// CUPTI itself: subscribers, buffers, attributes, threads, forbidden calls, forked children.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "tests/simgpu/fixture.h"

namespace tidemark {
namespace {

using namespace cupti;  // NOLINT

void ignore(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

TEST_F(SimGpu, SecondSubscriberIsRefused) {
  CUpti_SubscriberHandle second = nullptr;
  EXPECT_EQ(CUPTI(cuptiSubscribe)(&second, ignore, nullptr),
            CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  EXPECT_EQ(CUPTI(cuptiUnsubscribe)(second), CUPTI_ERROR_INVALID_PARAMETER);
  const char* text = nullptr;
  EXPECT_EQ(CUPTI(cuptiGetResultString)(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, &text),
            CUPTI_SUCCESS);
  EXPECT_STREQ(text, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED");
}

TEST_F(SimGpu, VersionAttributesAndIds) {
  uint32_t version = 0;
  EXPECT_EQ(CUPTI(cuptiGetVersion)(&version), CUPTI_SUCCESS);
  EXPECT_EQ(version, 130001U);
  size_t value = 0;
  size_t size = sizeof(value);
  EXPECT_EQ(CUPTI(cuptiActivityGetAttribute)(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, &size, &value),
            CUPTI_SUCCESS);
  EXPECT_EQ(value, 3'200'000U);
  uint32_t device = 99;
  uint32_t id = 0;
  uint32_t legacy = 0;
  uint32_t own = 0;
  EXPECT_EQ(CUPTI(cuptiGetDeviceId)(context_, &device), CUPTI_SUCCESS);
  EXPECT_EQ(device, 0U);
  EXPECT_EQ(CUPTI(cuptiGetContextId)(context_, &id), CUPTI_SUCCESS);
  EXPECT_EQ(CUPTI(cuptiGetContextId)(nullptr, &id), CUPTI_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(CUPTI(cuptiGetStreamIdEx)(context_, nullptr, 0, &legacy), CUPTI_SUCCESS);
  EXPECT_EQ(CUPTI(cuptiGetStreamIdEx)(context_, nullptr, 1, &own), CUPTI_SUCCESS);
  EXPECT_NE(legacy, own);
}

TEST_F(SimGpu, FullBuffersCompleteOnAWorkerThread) {
  probe_function<probe::probe_buffer_bytes_fn>("probe_buffer_bytes")(512);
  EXPECT_EQ(CUPTI(cuptiActivityFlushAll)(1), CUPTI_SUCCESS);
  const uint64_t before = log().buffers_completed;
  CUdeviceptr p = 0;
  for (int i = 0; i < 20; ++i) {
    OK(CU(cuMemAlloc_v2)(&p, 512));
    OK(CU(cuMemFree_v2)(p));
  }
  const auto memory = records(CUPTI_ACTIVITY_KIND_MEMORY2);
  EXPECT_EQ(memory.size(), 40U) << "none lost, none twice";
  EXPECT_GE(log().buffers_completed - before, 10U) << "four records of 128 bytes each";
  probe_function<probe::probe_buffer_bytes_fn>("probe_buffer_bytes")(1 << 16);
}

TEST_F(SimGpu, RecordsWithoutABufferAreCounted) {
  size_t dropped = 0;
  EXPECT_EQ(CUPTI(cuptiActivityGetNumDroppedRecords)(nullptr, 0, &dropped), CUPTI_SUCCESS);
  EXPECT_EQ(CUPTI(cuptiActivityFlushAll)(1), CUPTI_SUCCESS);
  // A buffer that was requested earlier is still in use: do not write into it.
  probe_function<probe::probe_buffer_bytes_fn>("probe_buffer_bytes")(0);
  CUdeviceptr p = 0;
  OK(CU(cuMemAlloc_v2)(&p, 512));
  OK(CU(cuMemFree_v2)(p));
  EXPECT_TRUE(records(CUPTI_ACTIVITY_KIND_MEMORY2).empty());
  EXPECT_EQ(CUPTI(cuptiActivityGetNumDroppedRecords)(nullptr, 0, &dropped), CUPTI_SUCCESS);
  EXPECT_EQ(dropped, 2U);
  EXPECT_EQ(CUPTI(cuptiActivityGetNumDroppedRecords)(nullptr, 0, &dropped), CUPTI_SUCCESS);
  EXPECT_EQ(dropped, 0U) << "reading resets";
  probe_function<probe::probe_buffer_bytes_fn>("probe_buffer_bytes")(1 << 16);
}

TEST_F(SimGpu, KernelTracingTakesDeviceMemoryUnlessPinned) {
  uint8_t pinned = 0;
  size_t size = 1;
  const auto set = CUPTI(cuptiActivitySetAttribute);
  EXPECT_EQ(set(CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED, &size, &pinned),
            CUPTI_SUCCESS);
  CUcontext context = nullptr;
  OK(CU(cuCtxCreate_v2)(&context, 0, 0));
  EXPECT_EQ(taken(), 100 * kMiB + 3 * 3'200'000U);
  OK(CU(cuCtxDestroy_v2)(context));
  OK(CU(cuCtxSetCurrent)(context_));
  EXPECT_EQ(taken(), 0U);
  pinned = 1;
  EXPECT_EQ(set(CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED, &size, &pinned),
            CUPTI_SUCCESS);
}

TEST_F(SimGpu, DisabledKindsLeaveNoRecords) {
  EXPECT_EQ(CUPTI(cuptiActivityDisable)(CUPTI_ACTIVITY_KIND_MEMORY2), CUPTI_SUCCESS);
  CUdeviceptr p = 0;
  OK(CU(cuMemAlloc_v2)(&p, 512));
  OK(CU(cuMemFree_v2)(p));
  EXPECT_TRUE(records(CUPTI_ACTIVITY_KIND_MEMORY2).empty());
  EXPECT_EQ(CUPTI(cuptiActivityEnable)(CUPTI_ACTIVITY_KIND_MEMORY2), CUPTI_SUCCESS);
  EXPECT_EQ(CUPTI(cuptiActivityEnable)(CUPTI_ACTIVITY_KIND_INVALID), CUPTI_ERROR_INVALID_KIND);
}

// Each thread uses one device; every call must be reported once per side, on its thread, with its
// device, and the card must be empty afterwards.
TEST_F(SimGpu, ManyThreadsOnSeveralDevices) {
  constexpr int kThreads = 16;
  constexpr int kRounds = 50;
  CUcontext contexts[2] = {context_, nullptr};
  OK(CU(cuDevicePrimaryCtxRetain)(&contexts[1], 1));
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  const auto allocate = CU(cuMemAlloc_v2);
  const auto release = CU(cuMemFree_v2);
  const auto use = CU(cuCtxSetCurrent);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      if (use(contexts[t % 2]) != CUDA_SUCCESS) ++failures;
      for (int i = 0; i < kRounds; ++i) {
        CUdeviceptr p = 0;
        if (allocate(&p, 4096) != CUDA_SUCCESS) ++failures;
        if (release(p) != CUDA_SUCCESS) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0);
  std::map<uint64_t, int> by_thread;
  std::map<uint32_t, int> by_device;
  std::set<uint32_t> correlations;
  for (const probe::Callback& c : calls(CBID_cuMemAlloc_v2)) {
    if (!c.exit) continue;
    ++by_thread[c.thread];
    ++by_device[c.device];
    correlations.insert(c.correlation);
  }
  EXPECT_EQ(correlations.size(), size_t{kThreads} * kRounds);
  EXPECT_EQ(by_device[0], kThreads / 2 * kRounds);
  EXPECT_EQ(by_device[1], kThreads / 2 * kRounds);
  EXPECT_EQ(records(CUPTI_ACTIVITY_KIND_MEMORY2).size(), size_t{2} * kThreads * kRounds);
  EXPECT_EQ(taken(), 0U);
  OK(CU(cuDevicePrimaryCtxRelease_v2)(1));
}

TEST_F(SimGpu, ForkedChildHasNoDriver) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    CUdeviceptr p = 0;
    const bool refused = CU(cuMemAlloc_v2)(&p, 512) == CUDA_ERROR_NOT_INITIALIZED &&
                         CU(cuInit)(0) == CUDA_ERROR_NOT_INITIALIZED;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

std::atomic<uint32_t> g_forbidden{0};
std::atomic<int> g_calls{0};

void misbehave(void*, CUpti_CallbackDomain domain, CUpti_CallbackId, const void*) {
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API) return;
  ++g_calls;
  size_t free = 0;
  size_t total = 0;
  g_forbidden = CU(cuMemGetInfo_v2)(&free, &total);
}

TEST(Subscriber, DriverCallsInsideACallbackAreRefused) {
  CUpti_SubscriberHandle subscriber = nullptr;
  // Subscribe before cuInit, so that the probe comes second.
  ASSERT_EQ(CUPTI(cuptiSubscribe)(&subscriber, misbehave, nullptr), CUPTI_SUCCESS);
  OK(CU(cuInit)(0));
  probe::Log seen;
  find_in<probe::probe_log_fn>(std::getenv("CUDA_INJECTION64_PATH"), "probe_log")(&seen);
  EXPECT_EQ(seen.subscribed, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);

  const auto enable = CUPTI(cuptiEnableCallback);
  EXPECT_EQ(enable(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, CBID_cuDeviceGetCount),
            CUPTI_SUCCESS);
  EXPECT_EQ(enable(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, 5000), CUPTI_ERROR_INVALID_PARAMETER);
  int count = 0;
  OK(CU(cuDriverGetVersion)(&count));
  EXPECT_EQ(g_calls.load(), 0) << "cuDriverGetVersion is not enabled";
  OK(CU(cuDeviceGetCount)(&count));
  EXPECT_EQ(g_calls.load(), 2);
  EXPECT_EQ(g_forbidden.load(), CUDA_ERROR_NOT_PERMITTED);
  ASSERT_EQ(CUPTI(cuptiUnsubscribe)(subscriber), CUPTI_SUCCESS);
  OK(CU(cuDeviceGetCount)(&count));
  EXPECT_EQ(g_calls.load(), 2);
  EXPECT_EQ(CUPTI(cuptiSubscribe)(&subscriber, ignore, nullptr), CUPTI_SUCCESS) << "free again";
}

}  // namespace
}  // namespace tidemark
