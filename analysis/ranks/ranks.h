// The ranks of a job against each other: who needs most and for what, who left the others first,
// who waited for whom when one failed, and what NCCL took on each.
//
// "Typical" is the rank in the middle of the peaks: with eight ranks of which one is guilty, a mean
// would blame all. Times are on the job's clock, as the model has them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/load/trace_model.h"

namespace tidemark {

struct RankHeight {
  int64_t rank = -1;
  int64_t device = 0;
  uint64_t bytes = 0;
  int64_t time_ns = 0;
};

struct OwnerExcess {
  std::string owner;  // torch, nccl, cublas …
  uint64_t bytes = 0;
  uint64_t typical_bytes = 0;
};

struct StackExcess {
  std::vector<std::string> frames;  // innermost first
  uint64_t bytes = 0;
  uint64_t typical_bytes = 0;
};

// The first rank that went above the middle of the others and stayed there up to its peak.
struct Divergence {
  bool found = false;
  int64_t rank = -1;
  int64_t time_ns = 0;
  uint64_t excess_bytes = 0;  // at its peak
};

// A collective that some ranks called and others never did.
struct StuckCollective {
  uint64_t communicator = 0;
  std::string communicator_name;
  std::string function;
  uint64_t sequence = 0;
  uint64_t size_bytes = 0;
  int64_t since_ns = 0;          // when the first one called it
  std::vector<int64_t> waiting;  // ranks
  std::vector<int64_t> absent;   // ranks that are waited for
};

struct CommunicatorBytes {
  uint64_t id = 0;
  std::string name;
  uint64_t ranks = 0;
  uint64_t bytes = 0;
};

// What the driver gave to NCCL on one rank. Which communicator an allocation was for is told by
// time: the one that was made last, or whose operation was being enqueued.
struct NcclMemory {
  int64_t rank = -1;
  int64_t device = 0;
  uint64_t peak_bytes = 0;                       // on the card
  uint64_t allocations = 0;                      // alive at that peak
  uint64_t user_bytes = 0;                       // ncclMemAlloc, at its own peak
  uint64_t host_bytes = 0;                       // pinned and host-located, at its own peak
  std::vector<CommunicatorBytes> communicators;  // at the peak, most first
};

struct RankComparison {
  bool compared = false;   // at least two ranks with memory
  bool framework = false;  // heights are the framework's allocated bytes; else what the driver gave
  std::vector<RankHeight> heights;  // by rank
  RankHeight highest;
  RankHeight typical;
  std::vector<OwnerExcess> owners;  // of the highest, most excess first
  std::vector<StackExcess> stacks;
  Divergence divergence;
  std::vector<StuckCollective> stuck;
  std::vector<NcclMemory> nccl;    // of every rank that NCCL took memory on
  uint64_t clock_residual_ns = 0;  // instants of different ranks are this uncertain
  bool clocks_checked = false;     // by collectives
};

RankComparison compare_ranks(const TraceModel& model);

// The parts, for whoever wants one alone.
std::vector<StuckCollective> find_stuck_collectives(const TraceModel& model);
std::vector<NcclMemory> nccl_memory(const TraceModel& model);

}  // namespace tidemark
