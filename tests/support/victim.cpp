#include "tests/support/victim.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <set>

namespace tidemark::test {

namespace {
std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
}  // namespace

Victim::Victim(const ScratchDirectory& directory, std::vector<std::string> arguments)
    : counters_(directory / "counters"),
      errors_(directory / "stderr"),
      output_(directory / "stdout") {
  arguments.insert(arguments.begin(), {TIDEMARK_VICTIM, directory.path(), counters_});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ != 0) return;
  const int out = ::open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int err = ::open(errors_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

void Victim::kill() const {
  ::kill(pid_, SIGKILL);
}

VictimEnd Victim::wait() {
  VictimEnd end;
  ::waitpid(pid_, &end.status, 0);
  end.errors = read_all(errors_);
  end.output = read_all(output_);
  return end;
}

std::vector<uint64_t> Victim::committed() const {
  std::vector<uint64_t> counts(64);
  std::ifstream in(counters_, std::ios::binary);
  in.read(reinterpret_cast<char*>(counts.data()),
          static_cast<std::streamsize>(counts.size() * sizeof counts[0]));
  return counts;
}

void expect_complete(const TraceContents& trace, const std::vector<uint64_t>& committed) {
  std::set<uint32_t> stacks;
  std::set<uint32_t> frames;
  for (const Frame& frame : trace.frames) EXPECT_TRUE(frames.insert(frame.id).second);
  for (const Stack& node : trace.stacks) EXPECT_TRUE(stacks.insert(node.id).second);
  for (const Stack& node : trace.stacks) {
    EXPECT_TRUE(node.parent == 0 || stacks.contains(node.parent));
    EXPECT_TRUE(frames.contains(node.frame));
  }
  EXPECT_TRUE(trace.repeated_strings.empty());

  std::vector<uint64_t> next(committed.size());
  for (const FrameworkEvent& row : trace.framework_events) {
    ASSERT_LT(row.thread, next.size());
    ASSERT_EQ(row.address, next[row.thread]++) << "thread " << row.thread;
    if (row.address % 64 != 0) continue;
    const auto text = trace.strings.find(row.metadata);
    ASSERT_NE(text, trace.strings.end()) << "thread " << row.thread << " row " << row.address;
    ASSERT_EQ(text->second, std::to_string(row.thread) + ":" + std::to_string(row.address));
    ASSERT_TRUE(stacks.contains(row.stack));
  }
  for (size_t thread = 0; thread < next.size(); ++thread) {
    EXPECT_GE(next[thread], committed[thread]) << "thread " << thread;
    EXPECT_LE(next[thread], committed[thread] + 1) << "thread " << thread;
  }
}

}  // namespace tidemark::test
