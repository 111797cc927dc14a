#include "proto/base/file_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <string>

#include "proto/base/descriptor.h"

namespace tidemark {
namespace {

TEST(FileIo, BytesComeBackFromWhereTheyWereWritten) {
  const Descriptor file(::memfd_create("file_io", MFD_CLOEXEC));
  ASSERT_TRUE(write_all(file.get(), "abc", 3));
  ASSERT_TRUE(write_all(file.get(), "def", 3));
  ASSERT_TRUE(write_at(file.get(), 1, "XY", 2));
  std::string text(5, '\0');
  ASSERT_TRUE(read_at(file.get(), 1, text.data(), text.size()));
  EXPECT_EQ(text, "XYdef");
}

TEST(FileIo, AFileThatIsTooShortIsNotAnError) {
  const Descriptor file(::memfd_create("file_io", MFD_CLOEXEC));
  ASSERT_TRUE(write_all(file.get(), "abc", 3));
  char bytes[4];
  errno = EIO;
  EXPECT_FALSE(read_at(file.get(), 0, bytes, sizeof bytes));
  EXPECT_EQ(errno, 0);
}

TEST(FileIo, FailuresKeepTheirErrno) {
  const Descriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_GE(full.get(), 0);
  EXPECT_FALSE(write_all(full.get(), "abc", 3));
  EXPECT_EQ(errno, ENOSPC);
  char byte = 0;
  EXPECT_FALSE(read_at(-1, 0, &byte, 1));
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace tidemark
