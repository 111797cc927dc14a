// Debug builds end a process that calls foreign code while it holds a lock others wait for.
#include <gtest/gtest.h>

#include "injector/process/tool_thread.h"

namespace tidemark::injector {
namespace {

TEST(ForeignCallTest, IsAllowedWithoutALock) {
  PidLock lock;
  lock.lock();
  lock.unlock();
  const ForeignCall foreign;
}

TEST(ForeignCallTest, IsAllowedUnderALockThatNobodyWaitsForWithoutALimit) {
  PidLock lock{PidLock::Use::kForeignCalls};
  ASSERT_TRUE(lock.lock_for(0));
  const ForeignCall foreign;
  lock.unlock();
}

TEST(ForeignCallDeathTest, EndsTheProcessUnderALockOfOurOwn) {
#ifdef NDEBUG
  GTEST_SKIP() << "checked in debug builds";
#else
  EXPECT_DEATH(
      {
        PidLock lock;
        lock.lock();
        const ForeignCall foreign;
      },
      "t_held == 0");
  EXPECT_DEATH(
      {
        PidLock lock;
        static_cast<void>(lock.try_lock());
        const ForeignCall foreign;
      },
      "t_held == 0");
#endif
}

TEST(ForeignCallDeathTest, ALockForForeignCallsIsNeverWaitedForWithoutALimit) {
#ifdef NDEBUG
  GTEST_SKIP() << "checked in debug builds";
#else
  PidLock lock{PidLock::Use::kForeignCalls};
  EXPECT_DEATH(lock.lock(), "kOurCodeOnly");
#endif
}

}  // namespace
}  // namespace tidemark::injector
