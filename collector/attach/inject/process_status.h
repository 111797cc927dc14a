// The status of a process or a thread, from /proc/PID/status.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tidemark::inject {

struct ProcessStatus {
  std::string name;
  char state = '?';
  pid_t tracer = 0;
  std::array<uint32_t, 3> uids{};  // real, effective, saved
  int seccomp = 0;                 // 0: none, 1: strict, 2: filter
  pid_t own_pid = 0;               // in its own pid namespace
  bool kernel_thread = false;
  uint64_t pending = 0;      // signals, of the thread or of the whole process
  uint64_t own_pending = 0;  // of the thread
  uint64_t blocked = 0;
};

ProcessStatus parse_status(std::string_view text);
// Nothing if there is no such process.
std::optional<ProcessStatus> read_status(pid_t pid);
// Whether a signal is pending that the thread would receive now.
bool has_deliverable_signal(pid_t process, pid_t thread);
// Whether this signal is pending for this thread itself, and not blocked.
bool has_own_signal(pid_t process, pid_t thread, int signal);
std::vector<pid_t> list_threads(pid_t pid);

}  // namespace tidemark::inject
