// Stacks of two runs paired: those that both runs have; the others by function and file of every
// frame and, where several stacks have the same, by the nearest lines, without passing a line that
// both have. So an edit that moves lines changes nothing else, nor does a copy of the program under
// another name. What is then left of both runs is paired in the same way by the frames of Python
// and the operation, then by those in files that both have, and at last by the user's line and the
// functions around it: another build of PyTorch or autocast puts other native frames in between,
// another program calls the model, and a caller may be in another file, as the cells of a notebook
// are.
// A recording of Python 3.11 or later names functions in full ("Engine.run",
// "f.<locals>.<lambda>"), a snapshot by their last part: if only one run has full names, the last
// parts are compared. If only one has native frames, the operations of a line, or of
// a node of a backward pass, are added up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/report/renamed_files.h"

namespace tidemark {

struct PairedStack {
  std::vector<std::string> frames;         // of the later run, if it has the stack
  std::vector<std::string> before_frames;  // if both have it, but it reads otherwise; else empty
  uint64_t before_bytes = 0;
  uint64_t after_bytes = 0;
};

// Collects the stacks of both runs. Add also those that have no bytes at the compared instant: a
// stack that both runs have must not be paired with another one.
class StackPairs {
 public:
  // "function file:line", innermost first.
  void add_before(const std::vector<std::string>& frames, uint64_t bytes) {
    entries_.push_back({frames, bytes, false});
  }
  void add_after(const std::vector<std::string>& frames, uint64_t bytes) {
    entries_.push_back({frames, bytes, true});
  }
  // Files of the one that are taken for files of the other.
  std::vector<RenamedFile> renamed() const;
  std::vector<PairedStack> pair() const;

 private:
  template <typename IsOne>
  bool only_one_has(IsOne&& is_one) const;  // run, such a frame
  bool by_last_names() const;
  bool by_operations() const;
  FileFunctions files(bool after, bool by_last_names) const;

  struct Entry {
    std::vector<std::string> frames;
    uint64_t bytes = 0;
    bool after = false;
  };
  std::vector<Entry> entries_;
};

}  // namespace tidemark
