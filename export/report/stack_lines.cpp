#include "export/report/stack_lines.h"

#include <algorithm>
#include <string_view>

namespace tidemark {

namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Frames in installed packages, and native frames, are not the user's code.
bool is_library(std::string_view frame) {
  return contains(frame, "site-packages/") || contains(frame, "dist-packages/") ||
         contains(frame, "lib/python3") || !contains(frame, ".py");
}

// Frames of the allocator and of the recorder: every stack begins with them.
bool is_plumbing(std::string_view frame) {
  for (const std::string_view part :
       {"libcudart.so", "libcuda.so", "libcupti.so", "torch::unwind::", "torch::CapturedTraceback",
        "::gather", "CUDACachingAllocator", "at::detail::empty", "at::native::empty",
        "c10::impl::wrap_kernel", "wrapper_CUDA__empty", "at::TensorBase at::", "empty_strided",
        "empty_memory_format"}) {
    if (contains(frame, part)) return true;
  }
  return false;
}

}  // namespace

const std::string* innermost_worth_showing(const std::vector<std::string>& frames) {
  const auto it = std::find_if_not(frames.begin(), frames.end(), is_plumbing);
  return it != frames.end() ? &*it : frames.empty() ? nullptr : &frames.front();
}

std::string headline_of(const std::vector<std::string>& frames) {
  if (frames.empty()) return "(no Python stack: backward pass or another C++ thread)";
  const auto own = std::find_if(frames.begin(), frames.end(),
                                [](const std::string& f) { return !is_library(f); });
  if (own != frames.end()) return *own;
  const auto backward = std::find_if(frames.begin(), frames.end(), [](const std::string& f) {
    return contains(f, "torch::autograd::generated::") || contains(f, "Backward");
  });
  return backward != frames.end() ? *backward : *innermost_worth_showing(frames);
}

}  // namespace tidemark
