// What joining the ranks of a job needs to know of each process: who it is, when it ran, and when
// its collectives ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/read/trace_reader.h"

namespace tidemark {

// The end of one collective on the GPU, by the clock of the rank.
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
  bool attached = false;            // the process was there before the recording
  uint32_t largest_string = 0;      // id
  std::vector<CollectiveEnd> ends;  // by communicator and sequence; see kEndsPerCommunicator

  // "rank 3 (node-a, pid 4711)".
  std::string label() const;
};

// A sample is enough, and bounds the memory of a job with many ranks. Every rank takes the same
// sequence numbers: those with the least hash.
inline constexpr size_t kEndsPerCommunicator = 512;
inline constexpr size_t kMostCommunicators = 8;  // those with the most collectives

// The processes of a file, by their number. Times are raw.
std::vector<RankFacts> read_rank_facts(const TraceReader& reader);

}  // namespace tidemark
