// The facts about each process that joining the ranks of a job needs: its identity, when it ran,
// and when its collectives ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/read/trace_reader.h"

namespace tidemark {

// The end of one collective on the GPU, on the clock of the rank.
struct CollectiveEnd {
  uint64_t communicator = 0;
  uint64_t sequence = 0;
  int64_t end_ns = 0;
};

struct RankFacts {
  uint32_t process = 0;  // in its file
  Process info{};
  std::string host;
  std::string job;
  int64_t first_ns = 0;  // of its events
  int64_t last_ns = 0;
  uint64_t rows = 0;
  bool attached = false;            // the process was running before the recording
  uint32_t largest_string = 0;      // id
  std::vector<CollectiveEnd> ends;  // by communicator and sequence; see kEndsPerCommunicator

  // "rank 3 (node-a, pid 4711)".
  std::string label() const;
};

// A sample is enough, and bounds the memory of a job with many ranks. Every rank samples the same
// sequence numbers: those with the smallest hash.
inline constexpr size_t kEndsPerCommunicator = 512;
inline constexpr size_t kMostCommunicators = 8;  // those with the most collectives

// The processes of a file, sorted by number. Times are raw. Without `ends`, the collectives are not
// read.
std::vector<RankFacts> read_rank_facts(const TraceReader& reader, bool ends = true);

}  // namespace tidemark
