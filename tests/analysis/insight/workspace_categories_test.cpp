// Workspaces of cuBLAS and other blocks of their sizes.
#include <gtest/gtest.h>

#include "tests/support/category_bytes.h"

namespace tidemark {
namespace {

constexpr uint64_t kOld = 8'519'680;
constexpr uint64_t kHopper = 32 * kMiB;

uint64_t bytes_of(const Trace& trace, Category category) {
  return bytes_where(trace, category, [](const AllocationHistory& model, size_t i) {
    return model.allocations.release(i) == kNever;
  });
}

// The blocks that are there at the end have stacks; of the history, one event is left.
void end_of_history(Story& s) {
  s.free(s.alloc(512, s.user(40)));
}

TEST(WorkspaceCategories, ATensorIsNone) {
  const Trace trace([](Story& s, uint32_t) {
    const uint32_t product =
        s.stack({"c10::cuda::CUDACachingAllocator::allocate alloc.cpp:0",
                 "at::detail::empty_generic(int) empty.cpp:0", "at::_ops::mm::call(int) mm.cpp:0",
                 "torch::autograd::Engine::thread_main engine.cpp:0"});
    s.alloc(kHopper, s.setup());
    s.alloc(4 * kMiB, s.setup());
    s.free(s.alloc(8 * kMiB, s.forward(1)));
    s.alloc(kHopper, product);
    s.alloc(4 * kMiB, product);
  });
  EXPECT_EQ(bytes_of(trace, Category::kWorkspace), 0U);
  EXPECT_EQ(bytes_of(trace, Category::kGradient), kHopper + 4 * kMiB);
}

// As many stay as there are parameters of the size.
TEST(WorkspaceCategories, GradientsOfTheSizeAreNone) {
  for (const bool workspaces : {false, true}) {
    const Trace trace([&](Story& s, uint32_t) {
      for (int i = 0; i < 3; ++i) s.alloc(kHopper, s.setup());
      const uint64_t kept = s.alloc(8 * kMiB, s.forward(1));
      if (workspaces) s.alloc(kHopper, s.forward(2));
      if (workspaces) s.alloc(kHopper, 0);
      for (int i = 0; i < 3; ++i) s.alloc(kHopper, 0);
      s.free(kept);
    });
    EXPECT_EQ(bytes_of(trace, Category::kGradient), 3 * kHopper) << workspaces;
    EXPECT_EQ(bytes_of(trace, Category::kWorkspace), workspaces ? 2 * kHopper : 0);
  }
}

TEST(WorkspaceCategories, TheDeviceHasOneSize) {
  const Trace trace([](Story& s, uint32_t) {
    end_of_history(s);
    for (int i = 0; i < 8; ++i) s.older_block(kHopper);
    s.older_block(kOld, s.forward(3));
  });
  EXPECT_EQ(bytes_of(trace, Category::kWorkspace), kOld);
  EXPECT_EQ(bytes_of(trace, Category::kParameter), 8 * kHopper);
}

// Blocks from before the history have stacks if they were allocated while it was recorded.
TEST(WorkspaceCategories, ThatOfALayerIsKnownByItsSize) {
  const Trace trace([](Story& s, uint32_t) {
    end_of_history(s);
    for (int i = 0; i < 4; ++i) s.older_block(3 * kMiB, s.forward(1));
    s.older_block(kOld, s.forward(2));
    s.older_block(5 * kMiB);
  });
  EXPECT_EQ(bytes_of(trace, Category::kWorkspace), kOld);
}

}  // namespace
}  // namespace tidemark
