// Builds the bridge with a compiler that is a shell script, against a torch that is a few files.
#include "bridge/bridge_build.h"

#include <errno.h>
#include <gnu/libc-version.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"

extern char** environ;

// Replaces that of the C library: locks do not work on every file system.
extern "C" int flock(int, int) noexcept {
  errno = ENOSYS;
  return -1;
}

namespace tidemark::test {
namespace {

namespace fs = std::filesystem;

// The end of what the compilers below write. A file without it is not whole.
constexpr char kEnd[] = "the end\n";

// Sets $out to the argument after -o.
constexpr char kFindOutput[] =
    "#!/bin/sh\n"
    "while [ $# -gt 0 ]; do [ \"$1\" = -o ] && out=$2; shift; done\n";
// Takes a while, during which the file exists.
constexpr char kSlow[] = "printf '\\177ELF' >\"$out\"; sleep 0.2; echo 'the end' >>\"$out\"\n";
// Needs the exit status of a child of its own, as a real compiler does.
constexpr char kWaits[] =
    "(exit 3); [ $? = 3 ] || exit 1\n"
    "printf '\\177ELF' >\"$out\"; echo 'the end' >>\"$out\"\n";
constexpr char kFails[] = "printf '\\177ELF' >\"$out\"; echo 'error: no'; exit 1\n";
constexpr char kCounts[] = "echo x >>\"$COUNT_FILE\"; echo 'error: no'; exit 1\n";

std::map<std::string, std::string> g_variables;
std::vector<std::string> g_entries;

const char* find_variable(const char* name) {
  const auto found = g_variables.find(name);
  return found != g_variables.end() ? found->second.c_str() : nullptr;
}

void each_entry(void (*visit)(const char* entry, void* context), void* context) {
  for (const std::string& entry : g_entries) visit(entry.c_str(), context);
}

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class BridgeTest : public testing::Test {
 protected:
  BridgeTest() {
    for (const char* folder : {"torch/include/c10/cuda", "torch/lib", "cache"}) {
      fs::create_directories(directory_ / folder);
    }
    fs::permissions(directory_ / "cache", fs::perms::owner_all);
    write("torch/include/c10/cuda/CUDACachingAllocator.h", "\n");
    write("torch/lib/libc10_cuda.so", "library\n");
    write("torch/version.py", "__version__ = '2.10.0+fake'\n");
    // Its own toolkit: the machine may have none.
    fs::create_directories(directory_ / "cuda/include/crt");
    write("cuda/include/cuda_runtime_api.h", "\n");
    write("cuda/include/crt/host_config.h", "\n");
    g_variables = {{"CUDA_HOME", directory_ / "cuda"},
                   {"XDG_CACHE_HOME", directory_ / "cache"},
                   {"PATH", "/usr/bin:/bin"},
                   {"COUNT_FILE", directory_ / "count"}};
  }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name, std::ios::binary) << text;
  }
  void use_compiler(const std::string& script) {
    write("compiler", kFindOutput + script);
    fs::permissions(directory_ / "compiler", fs::perms::owner_all);
    g_variables["CXX"] = directory_ / "compiler";
  }
  static bridge::Environment environment() {
    g_entries.clear();
    for (const auto& [name, value] : g_variables) g_entries.push_back(name + "=" + value);
    return {find_variable, each_entry};
  }

  std::unique_ptr<bridge::Outcome> build() {
    auto outcome = std::make_unique<bridge::Outcome>();
    bridge::build_bridge(environment(), (directory_ / "torch/lib/libc10_cuda.so").c_str(),
                         *outcome);
    return outcome;
  }
  bool builds_whole_library() {
    const auto outcome = build();
    return outcome->ready && read_all(outcome->path).ends_with(kEnd);
  }
  // In a process of its own; its exit status.
  static int in_child(const std::function<bool()>& work) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(work() ? 0 : 1);
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
  }
  size_t compilations() const {
    const std::string lines = read_all(directory_ / "count");
    return static_cast<size_t>(std::count(lines.begin(), lines.end(), '\n'));
  }
  std::vector<std::string> left_in_cache() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_ / "cache/tidemark")) {
      const std::string name = entry.path().filename();
      if (!name.ends_with(".so") && !name.ends_with(".lock")) names.push_back(name);
    }
    return names;
  }

  ScratchDirectory directory_;
};

TEST_F(BridgeTest, ManyProcessesBuildAtOnceWithoutLocks) {
  use_compiler(kSlow);
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    ::usleep(50'000);
    children.push_back(::fork());
    if (children.back() == 0) ::_exit(builds_whole_library() ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = 1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(builds_whole_library());
  EXPECT_EQ(left_in_cache(), std::vector<std::string>());
}

TEST_F(BridgeTest, CompilerWorksWhereSigchldIsIgnored) {
  use_compiler(kWaits);
  EXPECT_EQ(in_child([&] {
              ::signal(SIGCHLD, SIG_IGN);
              return builds_whole_library();
            }),
            0);
}

TEST_F(BridgeTest, FailureIsSeenWhereSigchldIsIgnored) {
  use_compiler(kFails);
  EXPECT_EQ(in_child([&] {
              ::signal(SIGCHLD, SIG_IGN);
              return !build()->ready;
            }),
            0);
}

TEST_F(BridgeTest, WaitOfTheProgramReturnsNoCompiler) {
  use_compiler(kFails);
  EXPECT_EQ(in_child([&] {
              static std::atomic<int> signals{0};
              std::atomic<bool> over{false};
              std::atomic<int> reaped{0};
              ::signal(SIGCHLD, [](int) { ++signals; });
              std::thread waiter([&] {
                while (!over) {
                  if (::wait(nullptr) > 0) ++reaped;
                }
              });
              const bool ready = build()->ready;
              over = true;
              waiter.join();
              return !ready && reaped == 0 && signals == 0;
            }),
            0);
}

TEST_F(BridgeTest, LiveEnvironmentIsNotRead) {
  use_compiler(kSlow);
  EXPECT_EQ(in_child([&] {
              // What getenv() may find while another thread calls setenv().
              static char* poison[] = {reinterpret_cast<char*>(8), nullptr};
              environ = poison;
              return builds_whole_library();
            }),
            0);
}

TEST_F(BridgeTest, MissingCompilerIsNotRemembered) {
  g_variables["PATH"] = directory_ / "nowhere";
  const auto outcome = build();
  EXPECT_FALSE(outcome->ready);
  EXPECT_NE(std::string(outcome->reason).find("no C++ compiler"), std::string::npos);
  g_variables["PATH"] = "/usr/bin:/bin";
  use_compiler(kWaits);
  EXPECT_TRUE(builds_whole_library());
}

TEST_F(BridgeTest, FailureIsRememberedForThatCompilerOnly) {
  use_compiler(kCounts);
  EXPECT_FALSE(build()->ready);
  const size_t attempts = compilations();
  EXPECT_GT(attempts, 0U);
  EXPECT_STREQ(build()->reason, "compilation failed: error: no");
  EXPECT_EQ(compilations(), attempts);
  fs::rename(directory_ / "compiler", directory_ / "broken");
  use_compiler(kWaits);
  EXPECT_TRUE(builds_whole_library());
}

// Debian's package: torch/lib has a link to the library.
TEST_F(BridgeTest, LibrariesOfADistributionBelongToItsPackage) {
  use_compiler(kWaits);
  fs::create_directories(directory_ / "lib/x86_64-linux-gnu");
  fs::create_directories(directory_ / "lib/python3/dist-packages");
  const fs::path library = directory_ / "lib/x86_64-linux-gnu/libc10_cuda.so.2.6.0";
  fs::rename(directory_ / "torch/lib/libc10_cuda.so", library);
  auto outcome = std::make_unique<bridge::Outcome>();
  bridge::build_bridge(environment(), library.c_str(), *outcome);
  EXPECT_STREQ(outcome->reason, "libc10_cuda.so is not in a PyTorch installation");
  const fs::path torch = directory_ / "lib/python3/dist-packages/torch";
  fs::rename(directory_ / "torch", torch);
  fs::create_symlink(library, torch / "lib/libc10_cuda.so");
  bridge::build_bridge(environment(), library.c_str(), *outcome);
  EXPECT_TRUE(outcome->ready) << outcome->reason;
  const std::string path = outcome->path;
  bridge::find_bridge(environment(), (torch / "lib/libc10_cuda.so").c_str(), *outcome);
  EXPECT_EQ(outcome->path, path);
}

TEST_F(BridgeTest, NameTellsTheKindOfMachine) {
  use_compiler(kWaits);
  const std::string name = fs::path(build()->path).filename();
  utsname machine{};
  ASSERT_EQ(::uname(&machine), 0);
  EXPECT_NE(name.find(machine.machine), std::string::npos) << name;
  EXPECT_NE(name.find(std::string("glibc") + ::gnu_get_libc_version()), std::string::npos) << name;
  EXPECT_NE(name.find("stdcxx6"), std::string::npos) << name;
}

TEST_F(BridgeTest, BuiltOnceForManyMachines) {
  use_compiler(kWaits);
  const std::string torch = directory_ / "torch/lib/libc10_cuda.so";
  const std::string shared = directory_ / "shared";
  fs::create_directories(shared);
  auto outcome = std::make_unique<bridge::Outcome>();
  bridge::build_bridge_in(environment(), torch.c_str(), shared.c_str(), *outcome);
  ASSERT_TRUE(outcome->ready) << outcome->reason;
  const std::string path = outcome->path;
  EXPECT_EQ(fs::path(path).parent_path(), shared);
  EXPECT_EQ(std::distance(fs::directory_iterator(shared), {}), 1);
  g_variables["TIDEMARK_BRIDGE_DIR"] = shared;
  use_compiler(kFails);
  outcome = build();
  EXPECT_TRUE(outcome->ready);
  EXPECT_EQ(outcome->path, path);
  // Nobody else may be able to change it.
  fs::permissions(path, fs::perms::group_write, fs::perm_options::add);
  EXPECT_FALSE(build()->ready);
}

TEST_F(BridgeTest, RebuildsForThisMachineAndKeepsTheOtherFile) {
  use_compiler(kWaits);
  const auto outcome = build();
  ASSERT_TRUE(outcome->ready);
  const std::string shared = outcome->path;
  std::ofstream(shared, std::ios::binary) << "does not load";
  const std::string torch = directory_ / "torch/lib/libc10_cuda.so";
  bridge::rebuild_bridge(environment(), torch.c_str(), *outcome);
  EXPECT_TRUE(outcome->ready);
  EXPECT_TRUE(outcome->compiled);
  EXPECT_NE(outcome->path, shared);
  EXPECT_TRUE(read_all(outcome->path).ends_with(kEnd));
  EXPECT_EQ(read_all(shared), "does not load");
  const std::string own = outcome->path;
  bridge::find_bridge(environment(), torch.c_str(), *outcome);
  EXPECT_EQ(outcome->path, own);
  bridge::rebuild_bridge(environment(), torch.c_str(), *outcome);
  EXPECT_FALSE(outcome->compiled);
}

}  // namespace
}  // namespace tidemark::test
