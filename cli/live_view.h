// How full the cards are: redrawn in place on a terminal, plain lines elsewhere.
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
  // Asks each process and draws. False when none answers.
  bool draw(std::vector<CudaProcess>& processes);

 private:
  bool terminal_;
  size_t drawn_lines_ = 0;
};

// "[####==--......]": allocated, the rest of reserved, the rest used by any process, free.
std::string fill_bar(const LiveDevice& device, size_t cells);

}  // namespace tidemark::cli
