// Which running processes a command applies to: PID…, --job ID or --all.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "collector/attach/cuda_processes.h"
#include "proto/base/result.h"

namespace tidemark::cli {

struct ProcessChoice {
  std::vector<int> pids;
  std::string job;
  bool all = false;
};

void add_choice(CLI::App& command, ProcessChoice& choice);

// At least one process, or an Error. Every PID must exist; of a job or of all processes, those
// that cannot be reached are left out.
Result<std::vector<CudaProcess>> choose(const ProcessChoice& choice);

// The reply to `live` for one device of a process; an unknown number is 0.
struct LiveDevice {
  uint64_t device = 0;
  std::string name;
  uint64_t total_bytes = 0;
  uint64_t used_bytes = 0;       // by all processes
  uint64_t process_bytes = 0;    // by this process
  uint64_t allocated_bytes = 0;  // PyTorch's
  uint64_t reserved_bytes = 0;
};
// An Error when the process does not answer.
Result<std::vector<LiveDevice>> ask_live(CudaProcess& process, bool may_load);

}  // namespace tidemark::cli
