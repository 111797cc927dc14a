// A running victim, from its "ready" to its end.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace tidemark::test {

class VictimProcess {
 public:
  explicit VictimProcess(std::vector<std::string> arguments,
                         const std::string& program = TIDEMARK_INJECT_VICTIM) {
    int in[2];
    int out[2];
    EXPECT_EQ(::pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    arguments.insert(arguments.begin(), program);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      std::vector<char*> argv;
      for (std::string& word : arguments) argv.push_back(word.data());
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    in_ = in[1];
    out_ = out[0];
    EXPECT_TRUE(said("ready\n"));
    output_.clear();
  }
  VictimProcess(const VictimProcess&) = delete;
  VictimProcess& operator=(const VictimProcess&) = delete;
  ~VictimProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    if (in_ >= 0) ::close(in_);
    ::close(out_);
  }

  pid_t pid() const { return pid_; }
  void write(const std::string& text) {
    EXPECT_EQ(::write(in_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  // Waits until it has printed the text.
  bool said(const std::string& text) {
    char byte = 0;
    while (!output_.ends_with(text) && ::read(out_, &byte, 1) == 1) output_ += byte;
    return output_.ends_with(text);
  }

  // Closes its input; returns what it prints then.
  std::string last_words() {
    ::close(in_);
    in_ = -1;
    char byte = 0;
    while (::read(out_, &byte, 1) == 1) output_ += byte;
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
    return output_;
  }
  bool ends_well() {
    const std::string words = last_words();
    if (words.ends_with("fine\n")) return true;
    ADD_FAILURE() << words;
    return false;
  }

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  std::string output_;
};

}  // namespace tidemark::test
