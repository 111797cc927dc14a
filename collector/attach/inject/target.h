// Whether a process may be entered, and if not, why and what would allow it.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "collector/attach/inject/process_maps.h"
#include "collector/attach/inject/process_status.h"
#include "proto/base/result.h"

namespace tidemark::inject {

struct Target {
  pid_t pid = 0;
  ProcessStatus status;
  std::vector<MappedFile> files;
};

// Looks only; the process notices nothing. Errors are sentences that begin with the pid.
Result<Target> examine_target(pid_t pid);

// After the kernel said no to ptrace: who forbids it. `system_error`: errno.
Error explain_refusal(pid_t pid, int system_error);

// What that depends on.
struct RefusalFacts {
  std::string who;     // the process's label
  std::string tracer;  // the label of who traces it already; ""
  uint32_t own_user = 0;
  std::array<uint32_t, 3> users{};  // the process's: real, effective, saved
  bool dumpable = true;
  int yama_scope = 0;
};
Error refusal(const RefusalFacts& facts, int system_error);

// Whether the process finds the very file at that path, in its own view of the file system.
Status check_visible(pid_t pid, const std::string& library);

// By the header of its program: 64 bits, our machine.
Status check_machine(pid_t pid, const std::string& program);

// "4711 (python)".
std::string process_label(pid_t pid, const ProcessStatus& status);

}  // namespace tidemark::inject
