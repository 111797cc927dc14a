// Asks every process of this machine that has tidemark loaded for its numbers.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <set>
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

class LiveProcesses {
 public:
  // Sorted by pid: the processes of this user, or of all users for root. All of them are asked at
  // once; one that has tidemark loaded but does not answer in time is listed without numbers, and
  // the next calls do not wait for it as long. A bridge to PyTorch that is in the cache is loaded
  // into processes that are not recorded.
  std::vector<LiveProcess> ask(std::chrono::milliseconds time);

 private:
  std::set<pid_t> silent_;  // did not answer the last time
};

}  // namespace tidemark
