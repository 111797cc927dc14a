// What is read of a process before the injection, and requests to Python.
#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "collector/attach/inject/arch.h"
#include "collector/attach/inject/library_copy.h"
#include "collector/attach/inject/process_maps.h"
#include "collector/attach/inject/process_status.h"
#include "collector/attach/inject/python_remote.h"
#include "collector/attach/inject/remote_symbols.h"
#include "collector/attach/inject/safe_call.h"
#include "collector/attach/inject/target.h"
#include "collector/launch/process_environment.h"
#include "tests/collector/attach/inject/victim_process.h"
#include "tests/support/scratch_directory.h"

namespace tidemark::inject {
namespace {

using test::ScratchDirectory;
using test::VictimProcess;

constexpr const char* kMaps =
    "aaaac0000000-aaaac0003000 r-xp 00000000 fe:01 10 /usr/bin/python3\n"
    "aaaac0013000-aaaac0014000 r--p 00003000 fe:01 10 /usr/bin/python3\n"
    "ffff90000000-ffff90021000 rw-p 00000000 00:00 0 \n"
    "ffff94000000-ffff94180000 r-xp 00000000 fe:01 11 /lib/libc.so.6\n"
    "ffff94190000-ffff94194000 r--p 00180000 fe:01 11 /lib/libc.so.6\n"
    "ffff95000000-ffff95100000 r-xp 00000000 fe:01 12 /usr/lib/lib with a space.so\n"
    "ffff96000000-ffff96001000 r-xp 00000000 00:00 0  [vdso]\n";

TEST(InjectParts, MapsAreReadByFile) {
  const std::vector<MappedFile> files = parse_maps(kMaps);
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files[1].name(), "libc.so.6");
  EXPECT_EQ(files[1].begin, 0xffff94000000u);
  EXPECT_EQ(files[1].end, 0xffff94194000u);
  EXPECT_TRUE(files[1].at_start);
  EXPECT_EQ(files[2].name(), "lib with a space.so");
  EXPECT_EQ(find_c_library(files), CLibrary::kGlibc);
  EXPECT_FALSE(has_cuda_driver(files));
  EXPECT_TRUE(parse_maps("nonsense\n12-\n\n").empty());
}

TEST(InjectParts, KnowsCLibraries) {
  const auto library = [](const std::string& path) {
    return find_c_library(parse_maps("1000-2000 r-xp 00000000 fe:01 10 " + path + "\n"));
  };
  EXPECT_EQ(library("/lib/ld-musl-x86_64.so.1"), CLibrary::kMusl);
  EXPECT_EQ(library("/usr/lib/musl/lib/libc.so"), CLibrary::kMusl);
  EXPECT_EQ(library("/usr/lib/aarch64-linux-musl/libc.so"), CLibrary::kMusl);  // Debian
  EXPECT_EQ(library("/lib/x86_64-linux-gnu/libc-2.31.so"), CLibrary::kGlibc);
  EXPECT_EQ(library("/usr/bin/busybox"), CLibrary::kNone);
  EXPECT_TRUE(has_cuda_driver(
      parse_maps("1000-2000 r-xp 00000000 fe:01 10 /usr/lib/libcuda.so.580.65.06\n")));
}

TEST(InjectParts, StatusIsRead) {
  const ProcessStatus status = parse_status(
      "Name:\ta name\nState:\tS (sleeping)\nTracerPid:\t42\nUid:\t1000\t1001\t1002\t1003\n"
      "NSpid:\t4711\t17\nVmSize:\t 100 kB\nSigPnd:\t0000000000000001\n"
      "ShdPnd:\t0000000000000200\nSigBlk:\t0000000000000200\nSeccomp:\t2\n");
  EXPECT_EQ(status.name, "a name");
  EXPECT_EQ(status.state, 'S');
  EXPECT_EQ(status.tracer, 42);
  EXPECT_EQ(status.uids[1], 1001u);
  EXPECT_EQ(status.own_pid, 17);
  EXPECT_EQ(status.pending, 0x201u);
  EXPECT_EQ(status.own_pending, 1u);
  EXPECT_EQ(status.blocked, 0x200u);
  EXPECT_EQ(status.seccomp, 2);
  EXPECT_FALSE(status.kernel_thread);
  EXPECT_TRUE(parse_status("Name:\tkthreadd\nState:\tS (sleeping)\n").kernel_thread);
}

TEST(InjectParts, OtherMachinesAreRefused) {
  const ScratchDirectory scratch;
  const auto refused = [&](uint8_t bits, uint16_t machine) {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = bits;
    header.e_machine = machine;
    std::ofstream(scratch / "program").write(reinterpret_cast<const char*>(&header), sizeof header);
    const Status status = check_machine(1, scratch / "program");
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(refused(ELFCLASS64, own_machine()), "");
  EXPECT_NE(refused(ELFCLASS32, EM_386).find("32-bit"), std::string::npos);
  EXPECT_NE(refused(ELFCLASS64, EM_RISCV).find("another CPU architecture"), std::string::npos);
}

TEST(InjectParts, SaysWhatForbidsIt) {
  RefusalFacts facts;
  facts.who = "process 7 (job)";
  facts.own_user = 1000;
  facts.users = {1000, 1000, 1000};
  const auto says = [&](const char* words) {
    const std::string text = refusal(facts, EPERM).message;
    EXPECT_NE(text.find(words), std::string::npos) << text;
    EXPECT_EQ(text.find(facts.who), 0u) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  };
  says("--cap-add=SYS_PTRACE");
  facts.yama_scope = 1;
  says("echo 0 | sudo tee /proc/sys/kernel/yama/ptrace_scope");
  facts.yama_scope = 2;
  says("only administrators may attach");
  facts.yama_scope = 3;
  says("allows no attaching");
  facts.dumpable = false;
  says("is not dumpable");
  facts.users = {1001, 1000, 1000};
  says("belongs to user 1001");
  facts.tracer = "process 8 (gdb)";
  says("is already traced by process 8 (gdb)");
  // Root is only stopped by a tracer, the last scope, and missing capabilities of a container.
  facts.own_user = 0;
  facts.tracer.clear();
  says("allows no attaching");
  facts.yama_scope = 2;
  says("--cap-add=SYS_PTRACE");
}

TEST(InjectParts, FindsFunctionsOfTheCLibrary) {
  const RemoteMemory memory(::getpid());
  const auto files = read_maps(::getpid());
  ASSERT_TRUE(files.ok());
  void* const libc = ::dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  ASSERT_NE(libc, nullptr);
  for (const char* name : {"munmap", "usleep"}) {
    // Not &munmap, which is a sanitizer's own function where there is one.
    EXPECT_EQ(find_libc_symbol(memory, *files, name),
              reinterpret_cast<uint64_t>(::dlsym(libc, name)));
  }
  EXPECT_EQ(find_libc_symbol(memory, *files, "no_such_function"), 0u);
}

TEST(InjectParts, PlaceInAJob) {
  using Values = std::map<std::string, std::string>;
  EXPECT_EQ(ProcessEnvironment(Values{{"RANK", "3"}, {"WORLD_SIZE", "8"}}).rank(), 3);
  EXPECT_EQ(ProcessEnvironment(Values{{"RANK", "3"}}).rank(), -1);
  const ProcessEnvironment slurm(
      Values{{"SLURM_PROCID", "5"}, {"SLURM_JOB_ID", "99"}, {"SLURM_STEP_ID", "0"}});
  EXPECT_EQ(slurm.rank(), 5);
  EXPECT_EQ(slurm.job(), "slurm-99.0");
}

// A process whose root directory is `root`; 0 if that is not permitted here.
pid_t start_in_root(const std::string& root) {
  int ready[2];
  if (::pipe(ready) != 0) return 0;
  const pid_t child = ::fork();
  if (child == 0) {
    const bool moved = (::geteuid() == 0 || ::unshare(CLONE_NEWUSER) == 0) &&
                       ::chroot(root.c_str()) == 0 && ::chdir("/") == 0;
    if (::write(ready[1], moved ? "y" : "n", 1) != 1 || !moved) ::_exit(1);
    ::pause();
    ::_exit(0);
  }
  char answer = 'n';
  if (::read(ready[0], &answer, 1) != 1) answer = 'n';
  ::close(ready[0]);
  ::close(ready[1]);
  if (answer == 'y') return child;
  ::waitpid(child, nullptr, 0);
  return 0;
}

TEST(InjectParts, LibraryIsCopiedIntoTheRootOfTheProcess) {
  namespace fs = std::filesystem;
  const ScratchDirectory directory;
  const std::string root = directory / "root";
  const std::string outside = directory / "outside";
  fs::create_directories(root + "/tmp");
  fs::create_directories(outside);
  const pid_t process = start_in_root(root);
  if (process == 0) GTEST_SKIP() << "chroot() is not permitted";
  const uid_t user = ::geteuid();
  const Result<std::string> copied = copy_library(process, user, TIDEMARK_INJECT_GUEST);
  ASSERT_TRUE(copied.ok()) << copied.error().message;
  EXPECT_EQ(fs::file_size(root + *copied), fs::file_size(TIDEMARK_INJECT_GUEST));
  EXPECT_TRUE(copied->starts_with("/tmp/tidemark-")) << *copied;

  // An absolute link leads to a place in that root, and to none outside.
  fs::remove_all(root + "/tmp");
  fs::create_symlink(outside, root + "/tmp");
  EXPECT_FALSE(copy_library(process, user, TIDEMARK_INJECT_GUEST).ok());
  EXPECT_TRUE(fs::is_empty(outside));
  fs::remove(root + "/tmp");
  fs::create_directories(root + "/elsewhere");
  fs::create_symlink("/elsewhere", root + "/tmp");
  EXPECT_TRUE(copy_library(process, user, TIDEMARK_INJECT_GUEST).ok());
  EXPECT_FALSE(fs::is_empty(root + "/elsewhere"));
  ::kill(process, SIGKILL);
  ::waitpid(process, nullptr, 0);
}

TEST(InjectParts, LibraryIsCopiedWithTheRightsOfTheUser) {
  namespace fs = std::filesystem;
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  constexpr uid_t kUser = 12345;
  const ScratchDirectory directory;
  fs::create_directories(directory / "tmp");
  const pid_t process = start_in_root(directory.path());
  ASSERT_NE(process, 0);
  EXPECT_FALSE(copy_library(process, kUser, TIDEMARK_INJECT_GUEST).ok());  // not its folder
  EXPECT_TRUE(fs::is_empty(directory / "tmp"));
  fs::permissions(directory.path(), fs::perms::all);
  fs::permissions(directory / "tmp", fs::perms::all);
  const Result<std::string> copied = copy_library(process, kUser, TIDEMARK_INJECT_GUEST);
  ASSERT_TRUE(copied.ok()) << copied.error().message;
  struct stat info {};
  ASSERT_EQ(::stat((directory.path() + *copied).c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, kUser);
  EXPECT_EQ(::geteuid(), 0U);
  ::kill(process, SIGKILL);
  ::waitpid(process, nullptr, 0);
}

TEST(InjectPython, RunsTheScript) {
  VictimProcess python({"obeys"}, TIDEMARK_FAKE_PYTHON);
  ASSERT_TRUE(ask_python(python.pid(), TIDEMARK_INJECT_GUEST, "guest_arrived").has_value());
  EXPECT_TRUE(python.said("script returned 0\n"));
  EXPECT_TRUE(python.ends_well());
}

// Root's script in /tmp, run by another user.
TEST(InjectPython, ScriptThatCannotBeRemovedLoadsTheLibrary) {
  const ScratchDirectory directory;
  const std::string script = directory / "script.py";
  std::ofstream(script) << script_text(directory / "no/such/script.py", TIDEMARK_INJECT_GUEST,
                                       "guest_arrived");
  EXPECT_EQ(std::system(("python3 " + script).c_str()), 0);
}

TEST(InjectPython, RequestIsWithdrawn) {
  VictimProcess python({"busy"}, TIDEMARK_FAKE_PYTHON);
  auto request = ask_python(python.pid(), TIDEMARK_INJECT_GUEST, "guest_arrived");
  ASSERT_TRUE(request.has_value());
  EXPECT_FALSE(ask_python(python.pid(), TIDEMARK_INJECT_GUEST, "guest_arrived").has_value());
  request->cancel();
  EXPECT_EQ(python.last_words(), "pending 0\nfine\n");
}

TEST(InjectPython, OthersAreLeftAlone) {
  for (const char* how : {"older", "forbids"}) {
    VictimProcess python({how}, TIDEMARK_FAKE_PYTHON);
    EXPECT_FALSE(ask_python(python.pid(), TIDEMARK_INJECT_GUEST, "guest_arrived").has_value());
    EXPECT_EQ(python.last_words(), "pending 0\nfine\n");
  }
  VictimProcess victim({"idle"});
  EXPECT_FALSE(ask_python(victim.pid(), TIDEMARK_INJECT_GUEST, "guest_arrived").has_value());
  EXPECT_TRUE(victim.ends_well());
}

}  // namespace
}  // namespace tidemark::inject
