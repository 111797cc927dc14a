// How full the cards are, drawn anew in place on a terminal, as plain lines elsewhere.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/process_choice.h"
#include "collector/attach/cuda_processes.h"

namespace tidemark::cli {

class LiveView {
 public:
  LiveView();
  // Asks each process and draws. False when none answers any more.
  bool draw(std::vector<CudaProcess>& processes);

 private:
  bool terminal_;
  size_t drawn_lines_ = 0;
};

// "[####==--......]": allocated, reserved beyond it, used by everybody beyond that, free.
std::string fill_bar(const LiveDevice& device, size_t cells);

}  // namespace tidemark::cli
