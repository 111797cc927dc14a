// Which running processes a command is about: PID…, --job ID or --all.
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

// At least one, or an Error. Pids that are named must be there; of the others only those that can
// be reached are taken.
Result<std::vector<CudaProcess>> choose(const ProcessChoice& choice);

// What `live` says of one device of a process; a number that is not known is 0.
struct LiveDevice {
  uint64_t device = 0;
  std::string name;
  uint64_t total_bytes = 0;
  uint64_t used_bytes = 0;       // by everybody
  uint64_t process_bytes = 0;    // by this process
  uint64_t allocated_bytes = 0;  // PyTorch's
  uint64_t reserved_bytes = 0;
};
// An Error when the process does not answer any more.
Result<std::vector<LiveDevice>> ask_live(CudaProcess& process, bool may_load);

}  // namespace tidemark::cli
