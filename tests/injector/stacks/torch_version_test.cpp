#include "injector/stacks/torch_version.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"

namespace tidemark::injector {
namespace {

TEST(TorchVersionTest, TextsOfEveryKind) {
  EXPECT_TRUE(parse_torch_version(" '2.13.0a0+git1'").at_least(2, 13));
  EXPECT_TRUE(parse_torch_version("3.0.0\n").at_least(2, 13));
  EXPECT_FALSE(parse_torch_version("\"2.9.1+cu130\"").at_least(2, 13));
  for (const char* text : {"", "unknown", "2", "2.", "'x.1'"}) {
    EXPECT_FALSE(parse_torch_version(text).known()) << text;
  }
}

TEST(TorchVersionTest, FilesOfAWheelAndOfTheLibraryForCpp) {
  const test::ScratchDirectory torch;
  std::filesystem::create_directory(torch / "lib");
  const std::string library = torch / "lib/libtorch_cpu.so";
  std::ofstream(library) << "";
  EXPECT_FALSE(read_torch_version(library.c_str()).known());
  std::ofstream(torch / "build-version") << "2.4.0+cu121\n";
  EXPECT_EQ(read_torch_version(library.c_str()).minor, 4);
  std::ofstream(torch / "version.py") << "from typing import Optional\n\n__version__ = '2.14.0'\n";
  EXPECT_EQ(read_torch_version(library.c_str()).minor, 14);
}

TEST(TorchVersionTest, LibrariesOfADistribution) {
  const test::ScratchDirectory root;
  const std::string library = root / "lib/x86_64-linux-gnu/libtorch_cpu.so.2.6.0";
  std::filesystem::create_directories(root / "lib/x86_64-linux-gnu");
  std::ofstream(library) << "";
  EXPECT_EQ(read_torch_version(library.c_str()).minor, 6);
  const std::string torch = root / "lib/python3/dist-packages/torch";
  std::filesystem::create_directories(torch + "/lib");
  std::ofstream(torch + "/version.py") << "__version__ = '2.7.1'\n";
  EXPECT_EQ(read_torch_version(library.c_str()).minor, 6);  // of another one
  std::filesystem::create_symlink(library, torch + "/lib/libtorch_cpu.so");
  EXPECT_EQ(read_torch_version(library.c_str()).minor, 7);
  EXPECT_FALSE(read_torch_version("/nowhere/lib/libtorch_cpu.so").known());
}

}  // namespace
}  // namespace tidemark::injector
