// Finishes the traces of processes that could not: killed, aborted, replaced by exec.
//
// The ring next to a trace (proto/ring_layout.h) says up to where the trace counts. The trace is
// truncated there, the ring's records are appended in place (a trace may be large, and the disk
// full), the index is written, and only then is the ring removed. If that is interrupted, the next
// recovery starts again from the same ring. Readers that open the file meanwhile see a valid,
// unfinished trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/base/result.h"

namespace tidemark {

enum class RecoveryOutcome : uint8_t {
  kNothingToDo,  // no ring, or another process has finished it
  kRecovered,
  kStillRunning,   // or possibly; left unchanged
  kElsewhere,      // may still be running on another machine; left unchanged
  kBusy,           // another recovery keeps it locked
  kRingElsewhere,  // the ring is on the node that recorded the trace; left unchanged
};

struct RecoveryReport {
  std::string path;  // of the trace
  std::string host;  // where its process ran; only if kElsewhere
  RecoveryOutcome outcome = RecoveryOutcome::kNothingToDo;
  uint64_t rows = 0;            // copied from the ring
  uint64_t dropped = 0;         // rows lost by the process and not yet reported in the trace
  uint64_t cut_bytes = 0;       // after the last checkpoint; their rows are in the ring
  uint64_t missing_bytes = 0;   // of the trace: the file is shorter than it was
  uint64_t damaged_chunks = 0;  // of the ring
};

struct DirectoryRecovery {
  std::vector<RecoveryReport> files;  // those with a ring, sorted by name
  std::vector<Error> failures;
};

// Who wants it. Only a user can decide that a process on another machine has ended.
enum class RecoveryBy : uint8_t { kReader, kUser };

// `path` is a trace or its ring.
Result<RecoveryReport> recover_file(const std::string& path, RecoveryBy by);
Result<DirectoryRecovery> recover_directory(const std::string& directory, RecoveryBy by);

}  // namespace tidemark
