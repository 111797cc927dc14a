// Makes the summaries of the processes of one host, which share its cards.
#pragma once

#include <string>
#include <vector>

#include "summary/summary_file.h"

namespace tidemark {

// A trace file of the host, and which of its processes are left out: those of other jobs.
struct HostFile {
  std::string path;
  std::vector<uint32_t> left_out;
};

struct MadeSummary {
  Status status;        // of this file: it could not be read
  bool lasting = true;  // false: the file is still being written
  FileSummary summary;  // without its group
  std::vector<FrameHashes> frames;  // of its processes
};

// In the order of the files. An Error: none could be loaded. `card_bytes`: as in ReportOptions.
Result<std::vector<MadeSummary>> summarize(const std::vector<HostFile>& files,
                                           uint64_t card_bytes = 0);

}  // namespace tidemark
