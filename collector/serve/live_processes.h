// Asks every process of this machine that has tidemark loaded for its numbers.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "collector/attach/control_client.h"

namespace tidemark {

struct LiveProcess {
  pid_t pid = 0;
  int64_t rank = -1;  // -1: none
  std::string job;    // "": none
  std::string host;
  bool answered = false;
  bool recording = false;
  ControlReply numbers;  // of the verb `live` (proto/control.h)
};

// Sorted by pid: the processes of this user, or of all users for root. All of them are asked at
// once, and each has a few seconds; one that has tidemark loaded but does not answer is listed
// without numbers. `may_load_bridge`: to ask PyTorch in processes that are not recorded.
std::vector<LiveProcess> ask_live_processes(bool may_load_bridge);

}  // namespace tidemark
