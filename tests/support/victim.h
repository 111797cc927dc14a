// Runs recorder_victim and checks what is left of its recording.
#pragma once

#include <string>
#include <vector>

#include "tests/support/scratch_directory.h"
#include "tests/support/trace_contents.h"

namespace tidemark::test {

struct VictimEnd {
  int status = 0;      // as of waitpid
  std::string errors;  // what it said on stderr
  std::string output;  // … on stdout
};

class Victim {
 public:
  Victim(const ScratchDirectory& directory, std::vector<std::string> arguments);
  void kill() const;
  VictimEnd wait();
  // Rows that each thread had committed for certain.
  std::vector<uint64_t> committed() const;

 private:
  std::string counters_;
  std::string errors_;
  std::string output_;
  int pid_ = -1;
};

// Each thread's rows are 0, 1, 2 … without gap or repetition, at least as many as it had counted
// and at most one more, and all names they refer to are there.
void expect_complete(const TraceContents& trace, const std::vector<uint64_t>& committed);

}  // namespace tidemark::test
