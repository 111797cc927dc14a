// A comparison of a job's ranks: which one needs most memory and for what, which one diverged
// first, which ones waited for which when one failed, and how much NCCL allocated on each.
//
// "Typical" is the rank with the median peak: if one of eight ranks is to blame, a mean would blame
// all. Times are on the job's clock, as in the model.
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
  std::vector<std::string> frames;      // innermost first
  std::vector<std::string> own_frames;  // those of them that no other rank recorded
  uint64_t bytes = 0;
  uint64_t typical_bytes = 0;
};

// The first rank that rose above the median of the others and stayed there up to its peak.
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
  int64_t since_ns = 0;          // the first call
  std::vector<int64_t> waiting;  // ranks
  std::vector<int64_t> absent;   // ranks that the others wait for
};

struct CommunicatorBytes {
  uint64_t id = 0;
  std::string name;
  uint64_t ranks = 0;
  uint64_t bytes = 0;
};

// NCCL's driver allocations on one rank. The communicator of an allocation is derived from its
// time: the one created last, or whose operation was being enqueued.
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
  bool framework = false;  // heights are the framework's allocated bytes; else the driver's
  std::vector<RankHeight> heights;  // by rank
  RankHeight highest;
  RankHeight typical;
  std::vector<OwnerExcess> owners;  // of the highest, most excess first
  std::vector<StackExcess> stacks;
  Divergence divergence;
  std::vector<StuckCollective> stuck;
  std::vector<NcclMemory> nccl;    // of every rank on which NCCL allocated memory
  uint64_t clock_residual_ns = 0;  // instants of different ranks are this uncertain
  bool clocks_checked = false;     // by collectives
};

RankComparison compare_ranks(const TraceModel& model);

// Its parts, for callers that need only one.
std::vector<StuckCollective> find_stuck_collectives(const TraceModel& model);
std::vector<NcclMemory> nccl_memory(const TraceModel& model);

}  // namespace tidemark
