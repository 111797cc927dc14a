// Many rank files become one: frames are copied as they are, under a new process number, so that
// nothing is decoded and memory does not grow with the number of ranks or of events.
//
// What is wrong with an input (cut, damaged, of another job, unreadable, ranks missing) does not
// stop the merge: it is returned, and written into the merged file, where every report shows it.
// Damaged frames are copied, damage and all, so that they are still counted. Raw times are kept;
// the alignment of the clocks stands beside them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "proto/base/result.h"

namespace tidemark {

struct MergeOptions {
  std::vector<std::string> inputs;  // traces and directories of traces
  std::string output;
  unsigned threads = 0;                  // 0: as many as there are processors
  std::function<void(double)> progress;  // called with the share done, 0 to 1
};

struct MergeReport {
  size_t files = 0;
  size_t processes = 0;
  uint64_t rows = 0;
  uint64_t bytes = 0;              // of the merged file
  uint64_t residual_ns = 0;        // the largest of the aligned ranks
  size_t aligned = 0;              // ranks whose clock the collectives told
  std::vector<std::string> notes;  // also in the file
};

Result<MergeReport> merge_traces(const MergeOptions& options);

}  // namespace tidemark
