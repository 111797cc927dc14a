// Whether a process may be entered, and if not, why and what would allow it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "collector/inject/process_maps.h"
#include "collector/inject/process_status.h"
#include "proto/result.h"

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

// Whether the process finds the very file at that path, in its own view of the file system.
Status check_visible(pid_t pid, const std::string& library);

// By the header of its program: 64 bits, our machine.
Status check_machine(pid_t pid, const std::string& program);

// "4711 (python)".
std::string process_label(pid_t pid, const ProcessStatus& status);

}  // namespace tidemark::inject
