// How the ranks of a job seal their windows together: a text file in the output directory, which
// all of them read once per second, or four times where it is on a local disk. A rank that seals for a reason of its own (out of memory, a
// limit, a command for the whole job) adds a line, and the others seal under the same name:
//
//   NAME JOB TIME_NS
//
// The directory is shared by the nodes of a job, so this also reaches ranks that no socket does.
// The file is opened anew each time, because a network file system shows what another node wrote
// when a file is opened. It exists from the start: that a file does not exist is cached for longer.
// Used by the writer thread only.
#pragma once

#include <limits.h>

#include <cstddef>
#include <cstdint>

namespace tidemark::injector {

inline constexpr size_t kSealNameBytes = 96;

// Letters, digits, '-', '_' and '.', not beginning with '.': one component of a path.
bool is_seal_name(const char* name) noexcept;
// "oom-20260131-235959", in UTC, so that ranks in one second get one name.
void make_seal_name(const char* reason, int64_t time_ns, char (&out)[kSealNameBytes]) noexcept;

class SealBoard {
 public:
  // `trace_path` tells the directory.
  SealBoard(const char* trace_path, const char* job) noexcept;

  // Whether it is time to look for new lines.
  bool look_due(int64_t now_ms) noexcept;
  // The next line of this job that was added since the last call. False: none.
  bool next(char (&name)[kSealNameBytes], int64_t& time_ns) noexcept;
  void announce(const char* name, int64_t time_ns) noexcept;

 private:
  uint64_t read_from(uint64_t offset, char* out, uint64_t size) noexcept;

  char path_[PATH_MAX];
  char job_[96];
  uint64_t seen_ = 0;  // bytes of the file
  int64_t period_ms_;
  int64_t next_look_ms_ = 0;
};

}  // namespace tidemark::injector
