// Two threads list processes at the same time: a recording's samples, and a reading for `tidemark
// attach`.
#include <dlfcn.h>

#include <thread>

#include <gtest/gtest.h>

#include "injector/sampling/nvml_library.h"

namespace tidemark::injector {
namespace {

TEST(ProcessListsTest, EachThreadGetsItsOwnList) {
  // NvmlLibrary finds it by the name that it was built with.
  ASSERT_NE(dlopen(TIDEMARK_SLOW_NVML, RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
  const auto expect_list = [](uintptr_t device) {
    NvmlLibrary nvml;
    ASSERT_TRUE(nvml.open()) << nvml.reason();
    ListedProcess listed[8];
    size_t count = 0;
    ASSERT_TRUE(
        nvml.list_processes(reinterpret_cast<nvml::nvmlDevice_t>(device), listed, 8, count));
    ASSERT_EQ(count, 3U);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(listed[i].pid, device);
  };
  std::thread other([&] { expect_list(1); });
  expect_list(2);
  other.join();
}

}  // namespace
}  // namespace tidemark::injector
