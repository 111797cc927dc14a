// On file systems without unnamed files, too, nothing but the output is ever changed.
#include "proto/base/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <thread>

#include "proto/base/file_io.h"
#include "tests/support/scratch_directory.h"

namespace tidemark {
namespace {

namespace fs = std::filesystem;

// This thread gets EOPNOTSUPP for unnamed files from now on. False: seccomp is not available.
bool refuse_unnamed_files() {
  constexpr uint32_t kUnnamed = O_TMPFILE & ~O_DIRECTORY;
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kUnnamed, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(code), code};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    return false;
  }
  return ::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) < 0 && errno == EOPNOTSUPP;
}

using Contents = std::map<std::string, std::string>;  // by name; "-> target" of a link

Contents contents_of(const std::string& folder) {
  Contents out;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    out[entry.path().filename()] = entry.is_symlink()
                                       ? "-> " + fs::read_symlink(entry.path()).string()
                                       : std::string(std::istreambuf_iterator<char>(file), {});
  }
  return out;
}

void replace_a_link(bool& filtered) {
  const test::ScratchDirectory folder;
  std::ofstream(folder / "victim") << "theirs";
  std::ofstream(folder / "out.partial") << "mine";
  fs::create_symlink("victim", folder / "out");
  const Contents before = contents_of(folder.path());
  if (filtered = refuse_unnamed_files(); !filtered) return;
  for (const bool committed : {false, true}) {
    {
      Result<OutputFile> file = OutputFile::create(folder / "out");
      ASSERT_TRUE(file);
      ASSERT_TRUE(write_all(file->fd(), "new", 3));
      EXPECT_EQ(contents_of(folder.path()).size(), before.size() + 1) << "the file has a name";
      if (committed) {
        ASSERT_TRUE(file->commit());
      }
    }
    Contents after = before;
    if (committed) after["out"] = "new";
    EXPECT_EQ(contents_of(folder.path()), after);
  }
}

TEST(OutputFile, WithoutUnnamedFilesNothingElseIsChanged) {
  bool filtered = false;
  std::thread(replace_a_link, std::ref(filtered)).join();  // a filter is of one thread
  if (!filtered) GTEST_SKIP() << "seccomp is not available";
}

}  // namespace
}  // namespace tidemark
