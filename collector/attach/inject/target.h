// Checks whether a library can be injected into a process; if not, why, and what would allow it.
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

// Read-only: the process is not affected. Errors are sentences that name the process.
Result<Target> examine_target(pid_t pid);

// After ptrace failed: explains what forbids it. `system_error`: errno.
Error explain_refusal(pid_t pid, int system_error);

// The facts that decide it.
struct RefusalFacts {
  std::string who;     // label of the process
  std::string tracer;  // label of the process that traces it already, or ""
  uint32_t own_user = 0;
  std::array<uint32_t, 3> users{};  // of the process: real, effective, saved
  bool dumpable = true;
  int yama_scope = 0;
};
Error refusal(const RefusalFacts& facts, int system_error);

// Checks that the process sees the same file at that path, in its own file system.
Status check_visible(pid_t pid, const std::string& library);

// Checks the ELF header of its program: 64 bits, same machine type.
Status check_machine(pid_t pid, const std::string& program);

// "4711 (python)".
std::string process_label(pid_t pid, const ProcessStatus& status);

}  // namespace tidemark::inject
