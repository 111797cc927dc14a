// Where libcupti is searched for, and which of the processes listed by NVML is ours.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "injector/cupti/loader.h"
#include "injector/sampling/nvml_sampler.h"

namespace tidemark::injector {
namespace {

std::vector<std::string> candidates(const std::vector<std::string_view>& mapped,
                                    size_t take_at = SIZE_MAX) {
  struct Context {
    std::vector<std::string> seen;
    size_t take_at;
  } context{{}, take_at};
  for_each_cupti_candidate(
      mapped,
      [](const char* path, void* c) {
        auto& out = *static_cast<Context*>(c);
        out.seen.emplace_back(path);
        return out.seen.size() > out.take_at;
      },
      &context);
  return context.seen;
}

size_t place_of(const std::vector<std::string>& list, const std::string& path) {
  return static_cast<size_t>(std::find(list.begin(), list.end(), path) - list.begin());
}

TEST(CaptureLoader, TheMappedCopyComesFirst) {
  const auto list = candidates({"/x/libcudart.so.12", "/wheel/libcupti.so.12"});
  EXPECT_EQ(list.at(0), "/wheel/libcupti.so.12");
}

TEST(CaptureLoader, WheelsOfTheRuntime) {
  const auto list = candidates({"/sp/nvidia/cuda_runtime/lib/libcudart.so.12"});
  const size_t wheel =
      place_of(list, "/sp/nvidia/cuda_runtime/lib/../../cuda_cupti/lib/libcupti.so.12");
  ASSERT_LT(wheel, list.size());
  EXPECT_LT(wheel, place_of(list, "libcupti.so.12"));
  EXPECT_LT(place_of(list, "/sp/nvidia/cuda_runtime/lib/libcupti.so.12"),
            place_of(list, "/sp/nvidia/cuda_runtime/lib/libcupti.so.13"))
      << "the runtime's own version first";
}

TEST(CaptureLoader, Cuda13WheelsLieTogether) {
  const auto list = candidates({"/sp/nvidia/cu13/lib/libcudart.so.13"});
  EXPECT_EQ(list.at(0), "/sp/nvidia/cu13/lib/libcupti.so.13");
}

TEST(CaptureLoader, NextToTorch) {
  const auto list = candidates({"/sp/torch/lib/libtorch_cuda.so"});
  EXPECT_LT(place_of(list, "/sp/torch/lib/../../nvidia/cuda_cupti/lib/libcupti.so.12"),
            list.size());
  EXPECT_LT(place_of(list, "/sp/torch/lib/../../nvidia/cu13/lib/libcupti.so.13"), list.size());
}

TEST(CaptureLoader, LibraryPathThenToolkits) {
  const auto list = candidates({});
  EXPECT_EQ(list.at(0), "libcupti.so.13");
  EXPECT_EQ(list.at(1), "libcupti.so.12");
  EXPECT_LT(place_of(list, "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13"), list.size());
}

TEST(CaptureLoader, StopsAtTheFirstAccepted) {
  EXPECT_EQ(candidates({}, 0).size(), 1u);
}

TEST(CaptureLoader, OverlongPathsAreLeftOut) {
  const std::string path = "/" + std::string(4000, 'x') + "/libcudart.so.12";
  for (const std::string& candidate : candidates({path})) EXPECT_LT(candidate.size(), 100u);
}

TEST(CaptureOwnProcess, ByPid) {
  const ListedProcess listed[] = {{10, 1, true}, {20, 2, true}};
  EXPECT_EQ(find_own_process(listed, 20), 1);
}

TEST(CaptureOwnProcess, TheOnlyOneIsUs) {
  const ListedProcess listed[] = {{99999, 1, true}};
  EXPECT_EQ(find_own_process(listed, 20), 0);
}

TEST(CaptureOwnProcess, OfSeveralStrangersNoneIsUs) {
  const ListedProcess listed[] = {{10, 1, true}, {11, 1, true}};
  EXPECT_EQ(find_own_process(listed, 20), -1);
  EXPECT_EQ(find_own_process({}, 20), -1);
}

}  // namespace
}  // namespace tidemark::injector
