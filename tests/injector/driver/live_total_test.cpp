// What a process holds through the driver, by owner.
#include "injector/driver/live_total.h"

#include <gtest/gtest.h>

#include <memory>

namespace tidemark::injector {
namespace {

constexpr uint8_t kTorch = 1;
constexpr uint8_t kNccl = 2;
constexpr uint64_t kMiB = 1 << 20;

struct Call {
  DriverOperation operation;
  MemoryKind kind = MemoryKind::kDevice;
  uint64_t address = 0;
  uint64_t handle = 0;
  uint64_t bytes = 0;
  uint32_t flags = 0;
  uint32_t context = 0;
};

class LiveTotalTest : public testing::Test {
 protected:
  bool note(const Call& call, uint8_t owner = kTorch) {
    DriverEvent event{};
    event.operation = call.operation;
    event.kind = call.kind;
    event.address = call.address;
    event.handle = call.handle;
    event.size_bytes = call.bytes;
    event.flags = call.flags;
    event.context = call.context;
    event.device = 1;
    return total_->note(event, owner);
  }
  uint64_t held(uint8_t owner) { return sums()->on_card[1][owner]; }
  uint64_t pinned() { return sums()->pinned; }

  std::unique_ptr<LiveTotal> total_ = std::make_unique<LiveTotal>();

 private:
  std::unique_ptr<HeldBytes> sums() {
    auto sums = std::make_unique<HeldBytes>();
    total_->add_up(*sums);
    return sums;
  }
};

using Do = DriverOperation;
constexpr MemoryKind kVirtual = MemoryKind::kVirtual;

TEST_F(LiveTotalTest, CountsByOwnerAndNoticesHighs) {
  EXPECT_TRUE(note({Do::kAllocate, MemoryKind::kDevice, 0x1000, 0, 3 * kMiB}));
  EXPECT_TRUE(note({Do::kAllocate, MemoryKind::kArray, 0, 0x1000, kMiB}, kNccl));  // same number
  EXPECT_EQ(held(kTorch), 3 * kMiB);
  EXPECT_EQ(held(kNccl), kMiB);
  note({Do::kFree, MemoryKind::kDevice, 0x1000}, kNccl);  // by whom does not matter
  EXPECT_EQ(held(kTorch), 0U);
  EXPECT_FALSE(note({Do::kAllocate, MemoryKind::kDevice, 0x1000, 0, 3 * kMiB}));
  EXPECT_TRUE(note({Do::kAllocate, MemoryKind::kDevice, 0x2000, 0, kMiB}));
  EXPECT_FALSE(note({Do::kAllocate, MemoryKind::kGraph, 0x3000, 0, 9 * kMiB}, kNccl));
  EXPECT_EQ(held(kNccl), 10 * kMiB);
  total_->clear();
  EXPECT_EQ(held(kNccl), 0U);
}

TEST_F(LiveTotalTest, LeavesOutWhatIsNotOnTheCard) {
  note({Do::kAllocate, MemoryKind::kManaged, 0x1000, 0, kMiB});
  note({Do::kCreate, kVirtual, 0, 5, kMiB, kDriverHostLocated});
  note({Do::kAllocate, MemoryKind::kDevice, 0x2000, 0, kMiB, kDriverOwn});
  EXPECT_EQ(held(kTorch), 0U);
  note({Do::kAllocate, MemoryKind::kPinned, 0x3000, 0, kMiB});
  note({Do::kRegister, MemoryKind::kPinned, 0x4000, 0, 2 * kMiB});
  EXPECT_EQ(pinned(), 3 * kMiB);
  note({Do::kUnregister, MemoryKind::kPinned, 0x4000});
  note({Do::kFree, MemoryKind::kPinned, 0x3000});
  EXPECT_EQ(pinned(), 0U);
}

// A handle may be released while its memory is mapped, and one call may unmap several.
TEST_F(LiveTotalTest, VirtualMemoryLivesWhileItIsReferencedOrMapped) {
  for (uint64_t handle = 1; handle <= 3; ++handle) {
    note({Do::kCreate, kVirtual, 0, handle, 2 * kMiB});
    note({Do::kMap, kVirtual, 0x100000000 + (handle - 1) * 2 * kMiB, handle, 2 * kMiB});
  }
  note({Do::kRelease, kVirtual, 0, 1});
  note({Do::kRelease, kVirtual, 0, 2});
  note({Do::kRetain, kVirtual, 0, 3});
  EXPECT_EQ(held(kTorch), 6 * kMiB);
  note({Do::kUnmap, kVirtual, 0x100000000, 0, 6 * kMiB});
  EXPECT_EQ(held(kTorch), 2 * kMiB);
  note({Do::kRelease, kVirtual, 0, 3});
  EXPECT_EQ(held(kTorch), 2 * kMiB);
  note({Do::kRelease, kVirtual, 0, 3});
  EXPECT_EQ(held(kTorch), 0U);
}

TEST_F(LiveTotalTest, APartOfAnOlderRangeIsUnmapped) {
  note({Do::kAllocate, kVirtual, 0x100000000, 0, 10 * kMiB, kDriverSeeded});
  note({Do::kUnmap, kVirtual, 0x100000000 + 2 * kMiB, 0, 4 * kMiB});
  EXPECT_EQ(held(kTorch), 6 * kMiB);
  note({Do::kUnmap, kVirtual, 0x100000000 + 6 * kMiB, 0, 4 * kMiB});
  EXPECT_EQ(held(kTorch), 2 * kMiB);
  note({Do::kUnmap, kVirtual, 0x100000000, 0, 2 * kMiB});
  EXPECT_EQ(held(kTorch), 0U);
}

TEST_F(LiveTotalTest, MemoryEndsWithItsContext) {
  note({Do::kAllocate, MemoryKind::kDevice, 0x1000, 0, 1 * kMiB, 0, 1});
  note({Do::kAllocate, MemoryKind::kArray, 0, 0x2000, 2 * kMiB, 0, 1});
  note({Do::kAllocate, MemoryKind::kStreamOrdered, 0x3000, 0, 4 * kMiB, 0, 1});
  note({Do::kCreate, kVirtual, 0, 0x4000, 8 * kMiB, 0, 1});
  note({Do::kAllocate, MemoryKind::kDevice, 0x5000, 0, 16 * kMiB, 0, 2});
  note({Do::kAllocate, MemoryKind::kPinned, 0x6000, 0, kMiB, 0, 1});
  total_->end_context(1, 1, false);
  EXPECT_EQ(held(kTorch), (4 + 8 + 16) * kMiB);
  EXPECT_EQ(pinned(), 0U);
  total_->end_context(1, 2, true);
  EXPECT_EQ(held(kTorch), 8 * kMiB) << "VMM memory belongs to no context";
}

TEST_F(LiveTotalTest, SaysWhatItCouldNotCount) {
  constexpr uint64_t kMany = 40'000;
  for (uint64_t i = 1; i <= kMany; ++i) {
    note({Do::kAllocate, MemoryKind::kDevice, i * 2 * kMiB, 0, 1});
  }
  EXPECT_GT(total_->uncounted(), 0U);
  EXPECT_EQ(held(kTorch) + total_->uncounted(), kMany);
}

}  // namespace
}  // namespace tidemark::injector
