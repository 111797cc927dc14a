// The host behaves the same with and without the recorder: output, errors and exit status.
// TIDEMARK_PROCESSES sets how many short programs are started in a row.
#include <fcntl.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "collector/recover/recovery.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/trace_contents.h"

namespace tidemark::test {
namespace {

using Environment = std::map<std::string, std::string>;

struct Ended {
  int status = 0;  // from waitpid
  std::string output;
  std::string errors;
  std::string said;  // tidemark's lines of its stderr
};

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// This process's environment plus the simulated driver and the given variables.
std::vector<std::string> environment_with(const Environment& more) {
  Environment all = {{"LD_LIBRARY_PATH", TIDEMARK_SIMGPU_LIBRARIES}, {"TIDEMARK_BUFFER_MB", "4"}};
  for (const auto& [name, value] : more) all[name] = value;
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!all.contains(text.substr(0, text.find('=')))) entries.push_back(text);
  }
  for (const auto& [name, value] : all) entries.push_back(name + "=" + value);
  return entries;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// A program that hangs is killed after a minute, which no test takes for a normal end.
int wait_or_kill(pid_t pid) {
  int status = -1;
  for (int tenths = 0; tenths < 600; ++tenths) {
    for (int tries = 0; tries < 100; ++tries) {
      if (::waitpid(pid, &status, WNOHANG) != 0) return status;
      ::usleep(1000);
    }
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, &status, 0);
  return status;
}

// posix_spawn does not copy this process, so thousands of starts are cheap.
int run_program(std::vector<std::string> arguments, const Environment& environment,
                const std::string& output, const std::string& errors) {
  std::vector<std::string> entries = environment_with(environment);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&files, 2, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, arguments[0].c_str(), &files, nullptr,
                                  pointers_to(arguments).data(), pointers_to(entries).data());
  posix_spawn_file_actions_destroy(&files);
  return error == 0 ? wait_or_kill(pid) : -1;
}

Ended run_survivor(const std::vector<std::string>& arguments, const Environment& environment) {
  const ScratchDirectory texts;
  std::vector<std::string> command = {TIDEMARK_SURVIVOR};
  command.insert(command.end(), arguments.begin(), arguments.end());
  Ended ended;
  ended.status = run_program(command, environment, texts / "out", texts / "err");
  ended.output = read_file(texts / "out");
  std::ifstream errors(texts / "err");
  for (std::string line; std::getline(errors, line);) {
    (line.starts_with("tidemark:") ? ended.said : ended.errors) += line + "\n";
  }
  return ended;
}

size_t lines_of(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

// Runs the program with and without the recorder, compares, and returns the run with it.
Ended compare(const std::vector<std::string>& arguments, const std::string& directory,
              Environment environment = {}, size_t complaints = 0) {
  const Ended without = run_survivor(arguments, environment);
  environment.insert({{"CUDA_INJECTION64_PATH", TIDEMARK_INJECTOR}, {"TIDEMARK_OUT", directory}});
  const Ended with = run_survivor(arguments, environment);
  EXPECT_EQ(with.status, without.status);
  EXPECT_EQ(with.output, without.output);
  EXPECT_EQ(with.errors, without.errors);
  EXPECT_EQ(without.said, "");
  EXPECT_EQ(lines_of(with.said), complaints) << with.said;
  return with;
}

size_t recorded_calls(const ScratchDirectory& directory) {
  const Result<DirectoryRecovery> recovered =
      recover_directory(directory.path(), RecoveryBy::kReader);
  EXPECT_TRUE(recovered && recovered->failures.empty());
  EXPECT_TRUE(directory.files(".ring").empty());
  size_t calls = 0;
  for (const std::string& path : directory.files(".tmk")) {
    const TraceContents trace = read_trace(path);
    EXPECT_FALSE(trace.damage.any() || trace.damage.unfinished) << path;
    for (const DriverEvent& event : trace.driver_events) {
      calls += event.operation == DriverOperation::kAllocate ? 1U : 0U;
    }
  }
  return calls;
}

struct End {
  const char* how;
  bool (*expected)(int status);
};

class SurvivalEnds : public testing::TestWithParam<End> {};

TEST_P(SurvivalEnds, AreTheSame) {
  const ScratchDirectory directory;
  const Ended ended = compare({GetParam().how}, directory.path());
  EXPECT_TRUE(GetParam().expected(ended.status)) << ended.status;
  EXPECT_NE(ended.output.find("used 13107200 bytes in turn, errno 0"), std::string::npos)
      << ended.output;
  EXPECT_EQ(recorded_calls(directory), 200U);
}

template <int Code>
bool exits(int status) {
  return WIFEXITED(status) && WEXITSTATUS(status) == Code;
}
template <int Signal>
bool dies_of(int status) {
  return WIFSIGNALED(status) && WTERMSIG(status) == Signal;
}

INSTANTIATE_TEST_SUITE_P(
    Survival, SurvivalEnds,
    testing::Values(End{"return", exits<0>}, End{"exit3", exits<3>}, End{"quick", exits<4>},
                    End{"_exit", exits<5>}, End{"exec", exits<6>}, End{"abort", dies_of<SIGABRT>},
                    End{"throw", dies_of<SIGABRT>}, End{"kill", dies_of<SIGKILL>},
                    End{"term", dies_of<SIGTERM>}, End{"segv", dies_of<SIGSEGV>}),
    [](const auto& end) { return std::string(end.param.how); });

TEST(Survival, ClosingEveryDescriptor) {
  const ScratchDirectory directory;
  const Ended ended = compare({"close_all"}, directory.path());
  EXPECT_NE(ended.output.find("first own file is 3, 0 bytes in them"), std::string::npos)
      << ended.output;
  EXPECT_EQ(recorded_calls(directory), 2000U);
}

TEST(Survival, SixtyFourThreads) {
  const ScratchDirectory directory;
  const Ended ended = compare({"threads", "64"}, directory.path());
  EXPECT_EQ(ended.output, "3200 calls in 64 threads\n");
  EXPECT_EQ(recorded_calls(directory), 3200U);
}

TEST(Survival, AllocationsThatFail) {
  const ScratchDirectory directory;
  EXPECT_EQ(compare({"run_out"}, directory.path()).output, "refused\n");
  EXPECT_EQ(recorded_calls(directory), 20U);
}

TEST(Survival, AnotherSubscriber) {
  const ScratchDirectory directory;
  // Without tidemark the other tool is loaded directly.
  const Ended alone = run_survivor(
      {"exit3"}, {{"CUDA_INJECTION64_PATH", TIDEMARK_CAPTURE_RIVAL}, {"RIVAL_SUBSCRIBES", "1"}});
  const Ended both = run_survivor({"exit3"}, {{"CUDA_INJECTION64_PATH", TIDEMARK_INJECTOR},
                                              {"TIDEMARK_OUT", directory.path()},
                                              {"TIDEMARK_CHAIN", TIDEMARK_CAPTURE_RIVAL},
                                              {"RIVAL_SUBSCRIBES", "1"}});
  EXPECT_TRUE(exits<3>(both.status));
  EXPECT_EQ(both.status, alone.status);
  EXPECT_EQ(both.output, alone.output);
  EXPECT_EQ(both.errors, alone.errors);
  EXPECT_EQ(lines_of(both.said), 1U) << both.said;
}

TEST(Survival, NoCupti) {
  const ScratchDirectory directory;
  const ScratchDirectory libraries;
  for (const char* name : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    std::filesystem::create_symlink(std::string(TIDEMARK_SIMGPU_LIBRARIES) + "/" + name,
                                    libraries / name);
  }
  compare({"exit3"}, directory.path(), {{"LD_LIBRARY_PATH", libraries.path()}}, 1);
}

// As on a card that fell off the bus. The program ends as it does without the recorder, and the
// trace says what is missing.
class SurvivalHang : public testing::TestWithParam<const char*> {};

TEST_P(SurvivalHang, EndsAllTheSame) {
  const ScratchDirectory directory;
  const Ended ended = compare({"return"}, directory.path(), {{"SIMGPU_HANG", GetParam()}});
  EXPECT_TRUE(exits<0>(ended.status)) << ended.status;
  EXPECT_EQ(recorded_calls(directory), 200U);
  const std::vector<std::string> traces = directory.files(".tmk");
  ASSERT_EQ(traces.size(), 1U);
  const TraceContents trace = read_trace(traces[0]);
  EXPECT_TRUE(std::any_of(trace.health.begin(), trace.health.end(), [](const Health& row) {
    return row.kind == HealthKind::kSourceMissing;
  }));
}

INSTANTIATE_TEST_SUITE_P(Survival, SurvivalHang,
                         testing::Values("nvml", "nvml:1", "nvml:3", "cupti", "cupti:1"),
                         [](const auto& library) {
                           std::string name = library.param;
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

// CUPTI does not return from the subscription, inside the program's cuInit().
TEST(Survival, CuptiThatHangsWhenItIsStarted) {
  const ScratchDirectory directory;
  const Ended ended = compare({"return"}, directory.path(), {{"SIMGPU_HANG", "subscribe"}});
  EXPECT_TRUE(exits<0>(ended.status)) << ended.status;
  const std::vector<std::string> traces = directory.files(".tmk");
  ASSERT_EQ(traces.size(), 1U);
  const TraceContents trace = read_trace(traces[0]);
  EXPECT_TRUE(std::any_of(trace.health.begin(), trace.health.end(), [&](const Health& row) {
    return row.kind == HealthKind::kSourceMissing &&
           trace.strings.at(row.detail).find("did not answer within 2 s; the beginning") !=
               std::string::npos;
  }));
}

TEST(Survival, AllocationsUnderTheLoadersLock) {
  const ScratchDirectory directory;
  const Ended ended = compare({"load", TIDEMARK_ALLOCATING_CONSTRUCTOR}, directory.path(),
                              {{"TIDEMARK_BRIDGE", "0"}, {"TIDEMARK_STACKS", "native"}}, 1);
  EXPECT_TRUE(exits<0>(ended.status)) << ended.status;
  EXPECT_EQ(ended.output, "loaded: 1\n");
  EXPECT_EQ(recorded_calls(directory), 5U);
}

TEST(Survival, NoDirectory) {
  const ScratchDirectory directory;
  std::ofstream(directory / "file") << "not a directory";
  compare({"exit3"}, directory / "file/sub", {}, 1);
}

// Files may not grow beyond 64 KiB, which is too small for both the ring and the trace.
TEST(Survival, NoRoomForFiles) {
  const ScratchDirectory directory;
  compare({"small_files"}, directory.path(), {}, 1);
}

// No space for the buffer, which goes elsewhere, and soon none for the trace.
TEST(Survival, FullDisk) {
  const ScratchDirectory directory;
  if (::mount("tmpfs", directory.path().c_str(), "tmpfs", 0, "size=8k") != 0) {
    GTEST_SKIP() << "not allowed to mount a disk here";
  }
  const Ended ended = compare({"threads", "64"}, directory.path(), {}, 1);
  EXPECT_NE(ended.said.find("No space left"), std::string::npos) << ended.said;
  // With space again, recovery finds everything.
  EXPECT_EQ(::mount("tmpfs", directory.path().c_str(), "tmpfs", MS_REMOUNT, "size=1m"), 0);
  EXPECT_EQ(recorded_calls(directory), 3200U);
  EXPECT_EQ(::umount2(directory.path().c_str(), MNT_DETACH), 0);
}

// Our allocator is always tested; TIDEMARK_PRELOADS adds others, separated by colons.
TEST(Survival, PreloadedAllocators) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers bring their own allocator";
#endif
  std::string libraries = TIDEMARK_COUNTING_MALLOC;
  if (const char* const more = std::getenv("TIDEMARK_PRELOADS"))
    libraries += ":" + std::string(more);
  for (size_t at = 0; at < libraries.size();) {
    const size_t end = std::min(libraries.find(':', at), libraries.size());
    const Environment preload = {{"LD_PRELOAD", libraries.substr(at, end - at)}};
    at = end + 1;
    SCOPED_TRACE(preload.at("LD_PRELOAD"));
    const ScratchDirectory threads;
    compare({"threads", "64"}, threads.path(), preload);
    EXPECT_EQ(recorded_calls(threads), 3200U);
    const ScratchDirectory plain;
    EXPECT_TRUE(exits<3>(compare({"exit3"}, plain.path(), preload).status));
    EXPECT_EQ(recorded_calls(plain), 200U);
  }
}

TEST(Survival, ManyShortPrograms) {
  const char* const text = std::getenv("TIDEMARK_PROCESSES");
  const int count = text == nullptr ? 200 : std::atoi(text);
  const ScratchDirectory directory;
  const ScratchDirectory texts;
  const Environment environment = {{"CUDA_INJECTION64_PATH", TIDEMARK_INJECTOR},
                                   {"TIDEMARK_OUT", directory.path()}};
  for (int i = 0; i < count; ++i) {
    const int status =
        run_program({TIDEMARK_SURVIVOR, "short"}, environment, texts / "out", texts / "err");
    ASSERT_EQ(status, 0) << "program " << i << ": " << read_file(texts / "err");
    ASSERT_EQ(std::filesystem::file_size(texts / "out"), 0U);
    ASSERT_EQ(std::filesystem::file_size(texts / "err"), 0U) << read_file(texts / "err");
  }
  EXPECT_TRUE(directory.files(".ring").empty());
  const std::vector<std::string> traces = directory.files(".tmk");
  ASSERT_EQ(traces.size(), static_cast<size_t>(count));
  for (const std::string& path : traces) {
    const Result<TraceReader> reader = TraceReader::open(path);
    ASSERT_TRUE(reader) << reader.error().message;
    ASSERT_FALSE(reader->damage().any() || reader->damage().unfinished) << path;
    ASSERT_FALSE(reader->blocks().empty()) << path;
  }
}

}  // namespace
}  // namespace tidemark::test
