// Merges many rank files into one: frames are copied unchanged under a new process number, so that
// nothing is decoded and memory does not grow with the number of ranks or events. Snapshots are
// imported first.
//
// Traces of several jobs are not merged. Other problems of an input (truncated, damaged,
// unreadable, missing ranks) do not stop the merge: they are returned and also written to the
// merged file, so that every report shows them, and `check` knows what was lost. Damaged frames are
// copied as they are, so that they are still counted. Times stay raw; the alignment of the clocks
// is stored next to them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "proto/base/result.h"

namespace tidemark {

struct MergeOptions {
  std::vector<std::string> inputs;  // traces and snapshots, and directories of them
  std::string output;
  unsigned threads = 0;                  // 0: one per processor
  std::function<void(double)> progress;  // called with the completed share, 0 to 1
};

struct MergeReport {
  size_t files = 0;
  size_t processes = 0;
  uint64_t rows = 0;
  uint64_t bytes = 0;              // of the merged file
  uint64_t residual_ns = 0;        // largest of the aligned ranks
  size_t aligned = 0;              // clocks that collectives checked or corrected
  std::vector<std::string> notes;  // also in the file
};

Result<MergeReport> merge_traces(const MergeOptions& options);

}  // namespace tidemark
