// The driver under test, its CUPTI, and what the probe recorded.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "abi/cuda_functions.h"
#include "abi/cupti.h"
#include "abi/nvml.h"
#include "tests/simgpu/probe.h"

namespace tidemark {

using namespace cuda;  // NOLINT

inline constexpr size_t kMiB = size_t{1} << 20;

// The stand-in libraries by name, found through LD_LIBRARY_PATH as a program finds the real ones.
template <typename Function>
Function find_in(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
  void* symbol = handle == nullptr ? nullptr : dlsym(handle, name);
  EXPECT_NE(symbol, nullptr) << library << ": " << name;
  return reinterpret_cast<Function>(symbol);
}

#define CU(NAME) (::tidemark::find_in<::tidemark::cuda::NAME##_fn>("libcuda.so.1", #NAME))
#define CUPTI(NAME) (::tidemark::find_in<::tidemark::cupti::NAME##_fn>("libcupti.so.13", #NAME))
#define NVML(NAME) (::tidemark::find_in<::tidemark::nvml::NAME##_fn>("libnvidia-ml.so.1", #NAME))
#define OK(CALL) ASSERT_EQ((CALL), ::tidemark::cuda::CUDA_SUCCESS)

// Device 0 is in use; the probe's log begins with the test.
class SimGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuDevicePrimaryCtxRetain)(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuCtxSetCurrent)(context_), CUDA_SUCCESS);
    ASSERT_EQ(CUPTI(cuptiActivityFlushAll)(1), cupti::CUPTI_SUCCESS);
    clear();
    free_at_start_ = free_bytes();
  }

  void TearDown() override {
    EXPECT_EQ(CU(cuCtxSetCurrent)(context_), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
  }

  static void clear() { probe_function<probe::probe_clear_fn>("probe_clear")(); }

  static probe::Log log() {
    probe::Log copy;
    probe_function<probe::probe_log_fn>("probe_log")(&copy);
    return copy;
  }

  template <typename Function>
  static Function probe_function(const char* name) {
    return find_in<Function>(std::getenv("CUDA_INJECTION64_PATH"), name);
  }

  static size_t free_bytes() {
    size_t free = 0;
    size_t total = 0;
    EXPECT_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
    return free;
  }
  // Bytes that this test has taken from the card so far.
  size_t taken() const { return free_at_start_ - free_bytes(); }

  // Calls of one function, ENTER and EXIT in order.
  static std::vector<probe::Callback> calls(uint32_t id) {
    std::vector<probe::Callback> found;
    for (const probe::Callback& c : log().callbacks) {
      if (c.domain == cupti::CUPTI_CB_DOMAIN_DRIVER_API && c.id == id) found.push_back(c);
    }
    return found;
  }

  // The only call of a function, after checking that its two sides match.
  static probe::Callback one_call(uint32_t id) {
    const std::vector<probe::Callback> found = calls(id);
    EXPECT_EQ(found.size(), 2U) << "callbacks of " << id;
    if (found.size() != 2) return {};
    EXPECT_FALSE(found[0].exit);
    EXPECT_TRUE(found[1].exit);
    EXPECT_EQ(found[0].correlation, found[1].correlation);
    EXPECT_NE(found[1].correlation, 0U);
    EXPECT_EQ(found[1].scratch, 0x5ca7c4U + found[0].correlation) << "scratch from ENTER to EXIT";
    return found[1];
  }

  static size_t resources(uint32_t id) {
    const probe::Log all = log();
    return static_cast<size_t>(std::count_if(
        all.callbacks.begin(), all.callbacks.end(),
        [&](const auto& c) { return c.domain == cupti::CUPTI_CB_DOMAIN_RESOURCE && c.id == id; }));
  }

  // Records of a kind, after a flush.
  static std::vector<probe::Record> records(uint32_t kind) {
    EXPECT_EQ(CUPTI(cuptiActivityFlushAll)(0), cupti::CUPTI_SUCCESS);
    std::vector<probe::Record> found;
    for (const probe::Record& r : log().records) {
      if (r.kind == kind) found.push_back(r);
    }
    return found;
  }

  CUcontext context_ = nullptr;
  size_t free_at_start_ = 0;
};

}  // namespace tidemark
