#include "injector/process/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace tidemark::injector {
namespace {

TEST(FileSystemTest, NetworkFileSystemsAreKnownByTheirType) {
  for (const uint64_t type : {0x6969UL, 0x0BD00BD0UL, 0x47504653UL, 0xFF534D42UL, 0x65735546UL,
                              0xFFFFFFFFFF534D42UL /* sign-extended */}) {
    EXPECT_TRUE(is_network_file_system(type)) << std::hex << type;
  }
  for (const uint64_t type : {0xEF53UL /* ext4 */, 0x58465342UL /* XFS */, 0x01021994UL /* tmpfs */,
                              0x794C7630UL /* overlayfs */, 0x9123683EUL /* btrfs */}) {
    EXPECT_FALSE(is_network_file_system(type)) << std::hex << type;
  }
  EXPECT_FALSE(on_network_file_system("/proc"));
  EXPECT_FALSE(on_network_file_system("/nowhere"));
  EXPECT_EQ(free_bytes_in("/nowhere"), 0U);
}

TEST(FileSystemTest, AMovedDescriptorIsTheSameFile) {
  const int fd = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  struct stat before {};
  ASSERT_EQ(::fstat(fd, &before), 0);
  const int moved = move_descriptor_up(fd);
  struct stat after {};
  ASSERT_EQ(::fstat(moved, &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_NE(moved, fd);
  EXPECT_NE(::fcntl(moved, F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
  ::close(moved);
  EXPECT_EQ(move_descriptor_up(-1), -1);
}

}  // namespace
}  // namespace tidemark::injector
