// The processes of this machine that use CUDA, and whether tidemark can attach to them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collector/attach/control_client.h"
#include "proto/base/result.h"

namespace tidemark {

enum class Reach {
  kLoaded,      // tidemark is loaded and answers
  kByPtrace,    // tidemark can be injected
  kImpossible,  // `obstacle` says why
};

struct CudaProcess {
  pid_t pid = 0;
  uid_t user = 0;
  std::string user_name;
  int64_t rank = -1;
  std::string job;
  std::string command;
  Reach reach = Reach::kImpossible;
  std::string obstacle;           // a sentence
  std::string state;              // of kLoaded: armed, recording, stopping
  std::string trace;              // of kLoaded: of the current or the last capture
  std::string control_directory;  // its TIDEMARK_CONTROL_DIR
  bool listens = false;           // tidemark is loaded, even if it does not answer
  std::optional<ControlClient> client;

  // Tidemark is loaded but does not answer: the process is stopped, or its control thread hangs.
  bool silent() const { return listens && reach != Reach::kLoaded; }
  std::string label() const;  // "process 4711 (rank 3)"
};

// Sorted by pid. Processes of other users only if they can be examined.
std::vector<CudaProcess> find_cuda_processes();
// The same without looking at them.
std::vector<pid_t> list_cuda_processes();

// Any process, with or without CUDA. An Error if there is none.
Result<CudaProcess> look_at(pid_t pid);

struct EntryOptions {
  std::string library;  // libtidemark.so, as the process sees it; "": the one next to this program
  std::chrono::milliseconds time = std::chrono::seconds(30);
};

// Makes sure that tidemark is loaded in the process and answers: injects it unless it is loaded
// already. Changes the process to kLoaded.
Status enter(CudaProcess& process, const EntryOptions& options);

}  // namespace tidemark
