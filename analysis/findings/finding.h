// One result of the diagnosis: what is wrong, the evidence, and what to do about it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tidemark {

struct Advice {
  std::string action;  // a short name for programs: "halve_batch"
  std::string detail;  // what to do, for people
  uint64_t saves_bytes = 0;
};

struct Finding {
  std::string id;
  std::string severity;  // error, warning, info
  int64_t rank = -1;
  uint64_t pid = 0;  // 0: of no single process
  std::string file;  // as in ProcessModel
  int64_t device = 0;
  std::string summary;
  std::vector<std::pair<std::string, uint64_t>> evidence;
  std::vector<std::string> frames;  // the stack that shows it best, innermost first
  std::vector<Advice> advice;       // greatest saving first

  // Of a process of this rank, pid and file, or of no single process.
  bool concerns(int64_t of_rank, uint64_t of_pid, std::string_view of_file) const {
    return (rank < 0 || rank == of_rank) && (pid == 0 || pid == of_pid) &&
           (file.empty() || file == of_file);
  }
};

inline constexpr const char* kError = "error";
inline constexpr const char* kWarning = "warning";
inline constexpr const char* kInfo = "info";

}  // namespace tidemark
