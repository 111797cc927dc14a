// What the comparison of a job's ranks needs of each process: a few kilobytes, whatever the length
// of its recording. Times are those of the model it was made from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/load/trace_model.h"

namespace tidemark {

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

struct CollectiveCall {
  uint64_t sequence = 0;
  int64_t start_ns = 0;
  uint64_t size_bytes = 0;
  std::string function;
};

// The collectives of one communicator that a process called.
struct CommunicatorCalls {
  uint64_t id = 0;
  std::string name;
  uint64_t next = 0;                 // the number after its last call
  uint64_t ran = 0;                  // the number after the last one that is known to have run
  int64_t ran_until_ns = INT64_MIN;  // the latest end of those
  // Calls from `ran` on, by number. Of very many, the first and the last ones.
  std::vector<CollectiveCall> waiting;
};

struct DeviceHeights {
  int64_t device = 0;
  Peak framework;  // allocated; 0 bytes: none
  Peak driver;     // on the card
};

struct RankDigest {
  int64_t rank = -1;
  std::vector<DeviceHeights> devices;
  std::vector<NcclMemory> nccl;
  std::vector<CommunicatorCalls> calls;  // by communicator
  uint64_t clock_residual_ns = 0;
  bool clock_checked = false;  // by collectives
  bool clock_known = false;    // relative to the other ranks, if there are any
  bool kept_window = false;    // the peaks are those of the last stretch of its run
};

RankDigest digest_of(const ProcessModel& process);

// Its parts.
std::vector<NcclMemory> nccl_memory(const ProcessModel& process);
std::vector<CommunicatorCalls> collective_calls(const ProcessModel& process);

// Hashes of the text of every frame, sorted: ids differ from rank to rank. The same in every
// process and version. Empty: the process has no stacks.
using FrameHashes = std::vector<uint64_t>;
uint64_t frame_hash(std::string_view text);
FrameHashes frame_hashes(const Dictionary& names);

}  // namespace tidemark
