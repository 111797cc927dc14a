// Runs recorder_victim and checks the recording it leaves.
#pragma once

#include <string>
#include <vector>

#include "tests/support/scratch_directory.h"
#include "tests/support/trace_contents.h"

namespace tidemark::test {

struct VictimEnd {
  int status = 0;      // from waitpid
  std::string errors;  // what it wrote on stderr
  std::string output;  // … and on stdout
};

class Victim {
 public:
  Victim(const ScratchDirectory& directory, std::vector<std::string> arguments);
  void kill() const;
  VictimEnd wait();
  // Rows that each thread had certainly committed.
  std::vector<uint64_t> committed() const;

 private:
  std::string counters_;
  std::string errors_;
  std::string output_;
  int pid_ = -1;
};

// Each thread's rows are 0, 1, 2 … without gaps or repetitions, at least as many as it had counted
// and at most one more, and all names they refer to are present.
void expect_complete(const TraceContents& trace, const std::vector<uint64_t>& committed);

}  // namespace tidemark::test
