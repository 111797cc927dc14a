// Finishes the traces of processes that did not: killed, aborted, replaced by exec.
//
// The ring beside a trace (proto/ring_layout.h) says up to where the trace counts; the trace is cut
// there, the ring's records are appended in place (a trace may be large, and the disk full), the
// index is written, and only then the ring removed. Whatever interrupts that, the next recovery
// starts from the same ring and does it again. Readers that see the file meanwhile see a valid,
// unfinished trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/base/result.h"

namespace tidemark {

enum class RecoveryOutcome : uint8_t {
  kNothingToDo,  // no ring, or another process finished it meanwhile
  kRecovered,
  kStillRunning,  // or perhaps; left alone
  kBusy,          // another recovery holds it for long
};

struct RecoveryReport {
  std::string path;  // of the trace
  RecoveryOutcome outcome = RecoveryOutcome::kNothingToDo;
  uint64_t rows = 0;            // taken from the ring
  uint64_t dropped = 0;         // rows lost by the process, not yet said in the trace
  uint64_t cut_bytes = 0;       // behind the last checkpoint; their rows are in the ring
  uint64_t missing_bytes = 0;   // of the trace: the file is shorter than it was
  uint64_t damaged_chunks = 0;  // of the ring
};

struct DirectoryRecovery {
  std::vector<RecoveryReport> files;  // those with a ring, by name
  std::vector<Error> failures;
};

// `path` is a trace or its ring.
Result<RecoveryReport> recover_file(const std::string& path);
Result<DirectoryRecovery> recover_directory(const std::string& directory);

}  // namespace tidemark
