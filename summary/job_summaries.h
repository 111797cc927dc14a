// The summaries of all ranks of a job's directory: read where `tidemark prepare` left them, made
// where it did not.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collector/job/alignment.h"
#include "summary/summary_file.h"

namespace tidemark {

// One process of the job.
struct JobRank {
  std::string path;  // of its trace
  uint32_t process = 0;
  std::vector<uint32_t> others;  // processes of the same file
  RankSummary summary;
  Alignment clock{};  // applied to the summary
};

struct JobSummaries {
  std::string path;
  std::vector<JobRank> ranks;      // by rank; processes without one come last
  std::vector<std::string> notes;  // files that are left out or could not be read, and why
  bool incomplete = false;         // a file could not be read, or ranks are missing
  Damage damage;
  uint64_t unknown_blocks = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  size_t made = 0;  // ranks whose summary was not there

  // Of a rank, by its summary's number; null: it cannot be read.
  std::shared_ptr<const FrameHashes> frames_of(const JobRank& rank) const;
  std::map<uint64_t, std::shared_ptr<const FrameHashes>> frames;  // of those that were made
};

// Which part of the work one of several processes does.
struct TaskShare {
  size_t index = 0;
  size_t count = 1;
};

struct SummaryOptions {
  unsigned threads = 0;                  // 0: one per processor
  uint64_t card_bytes = 0;               // as in ReportOptions; otherwise no summary is read
  std::function<void(double)> progress;  // called with the completed share, 0 to 1
};

// How many trace files a directory has; 0 if it also has snapshots or is not a directory: then it
// is not read by summaries.
size_t count_traces(const std::string& path);

Result<JobSummaries> read_job(const std::string& path, const SummaryOptions& options = {});

struct Preparation {
  size_t made = 0;  // trace files
  size_t fresh = 0;
  size_t others = 0;                 // of other tasks
  std::vector<std::string> skipped;  // why a file has no summary; one sentence each
  std::vector<std::string> failed;
};
// Makes and keeps the missing summaries of one task's share.
Result<Preparation> prepare_job(const std::string& path, const TaskShare& share,
                                const SummaryOptions& options = {});

}  // namespace tidemark
