// Starts and stops captures in running processes.
#pragma once

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "collector/attach/cuda_processes.h"
#include "proto/base/result.h"

namespace tidemark::cli {

// Ctrl-C and SIGTERM set a flag instead of ending tidemark, so that it can stop captures first.
class StopRequest {
 public:
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  bool asked() const;
  // Sleeps; true when a signal asked to stop in the meantime.
  bool sleep(std::chrono::milliseconds time) const;

 private:
  struct sigaction before_int_ {};
  struct sigaction before_term_ {};
};

// For --library: the given path made absolute.
EntryOptions entry_options(const std::string& library);

// Enters each process and returns those where it worked. With a single process, a failure is the
// Error; with several, it is a warning and the others go on.
Result<std::vector<CudaProcess>> enter_all(std::vector<CudaProcess> processes,
                                           const EntryOptions& options);

// Compiles the bridge to PyTorch's allocator where it is missing, so that its events are recorded
// from the first instant. Announces it unless quiet.
void prepare_bridges(const std::vector<CudaProcess>& processes, bool quiet);

// Creates a new directory beside `target` that these processes can write to. Returns its path.
Result<std::string> make_scratch_directory(const std::string& target,
                                           const std::vector<CudaProcess>& processes);
struct TraceDirectory {
  std::string path;   // absolute
  bool made = false;  // false: it existed
};
// Creates the trace directory so that these processes can write to it.
Result<TraceDirectory> make_trace_directory(const std::string& directory,
                                            const std::vector<CudaProcess>& processes);

// Stops the captures and returns the finished traces.
std::vector<std::string> stop_all(std::vector<CudaProcess>& processes);

// Names native functions and prints the summary, once per directory of traces.
void summarise(const std::vector<std::string>& traces);

}  // namespace tidemark::cli
