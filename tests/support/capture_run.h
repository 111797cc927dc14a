// Runs a program under libtidemark.so on simulated cards and keeps its output and traces.
#pragma once

#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/scratch_directory.h"
#include "tests/support/trace_contents.h"

namespace tidemark::test {

class CaptureRun {
 public:
  using Environment = std::map<std::string, std::string>;

  CaptureRun& with(const std::string& name, const std::string& value) {
    environment_[name] = value;
    return *this;
  }

  // Runs the command and waits for it.
  CaptureRun& run(const std::string& command) {
    std::string line = "env -u TIDEMARK_OUT";
    Environment all = {{"LD_LIBRARY_PATH", TIDEMARK_SIMGPU_LIBRARIES},
                       {"CUDA_INJECTION64_PATH", TIDEMARK_INJECTOR},
                       {"TIDEMARK_OUT", out_.path()},
                       {"TIDEMARK_BUFFER_MB", "4"}};
    for (const auto& [name, value] : environment_) all[name] = value;
    for (const auto& [name, value] : all) line += " " + name + "='" + value + "'";
    line += " " + command + " >" + (text_ / "stdout") + " 2>" + (text_ / "stderr");
    status_ = std::system(line.c_str());
    return *this;
  }

  int exit_status() const { return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1; }
  std::string output() const { return read(text_ / "stdout"); }
  std::string errors() const { return read(text_ / "stderr"); }
  std::vector<std::string> traces() const { return out_.files(".tmk"); }
  std::vector<std::string> rings() const { return out_.files(".ring"); }

  // The trace of the only process.
  TraceContents trace() const {
    const auto files = traces();
    EXPECT_EQ(files.size(), 1u);
    return files.size() == 1 ? read_trace(files[0]) : TraceContents();
  }

  // Number of lines tidemark wrote on stderr.
  size_t complaints() const {
    std::istringstream lines(errors());
    std::string line;
    size_t count = 0;
    while (std::getline(lines, line)) count += line.starts_with("tidemark:") ? 1u : 0u;
    return count;
  }

 private:
  static std::string read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  ScratchDirectory out_;
  ScratchDirectory text_;
  Environment environment_;
  int status_ = -1;
};

}  // namespace tidemark::test
