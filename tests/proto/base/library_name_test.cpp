#include "proto/base/library_name.h"

#include <gtest/gtest.h>

namespace tidemark {
namespace {

TEST(LibraryNameTest, WithAndWithoutVersion) {
  for (const char* file : {"libc10_cuda.so", "libc10_cuda.so.2", "libc10_cuda.so.2.6.0"}) {
    EXPECT_TRUE(is_library_name(file, "libc10_cuda.so")) << file;
  }
  for (const char* file : {"", "libc10.so", "libc10_cuda.so.", "libc10_cuda.so.debug",
                           "libc10_cuda.so2", "libc10_cuda-1a2b3c4d.so", "mylibc10_cuda.so"}) {
    EXPECT_FALSE(is_library_name(file, "libc10_cuda.so")) << file;
  }
}

}  // namespace
}  // namespace tidemark
