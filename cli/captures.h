// Beginning and ending captures in running processes.
#pragma once

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "collector/attach/cuda_processes.h"
#include "proto/base/result.h"

namespace tidemark::cli {

// Ctrl-C and SIGTERM set a flag instead of ending us, so that captures are ended first.
class StopRequest {
 public:
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  bool asked() const;
  // Sleeps; true when somebody asked to stop meanwhile.
  bool sleep(std::chrono::milliseconds time) const;

 private:
  struct sigaction before_int_ {};
  struct sigaction before_term_ {};
};

// For --library: what was given, as a full path.
EntryOptions entry_options(const std::string& library);

// Enters each and keeps those where it worked. Of one process alone the reason is the Error; of
// several it is said, and work goes on with the others.
Result<std::vector<CudaProcess>> enter_all(std::vector<CudaProcess> processes,
                                           const EntryOptions& options);

// Sees to it that PyTorch's allocator can be listened to from the first instant: compiles the
// bridge where it is missing, and says so unless quiet.
void prepare_bridges(const std::vector<CudaProcess>& processes, bool quiet);

// Makes the directory for traces of these processes, so that they can write to it; its full path.
Result<std::string> make_trace_directory(const std::string& directory,
                                         const std::vector<CudaProcess>& processes);

// Ends the captures; the traces that were finished.
std::vector<std::string> stop_all(std::vector<CudaProcess>& processes);

// Names native functions and prints the summary, once for traces that lie together.
void summarise(const std::vector<std::string>& traces);

}  // namespace tidemark::cli
