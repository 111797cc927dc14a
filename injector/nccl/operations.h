// Records NCCL's communicators and operations, independently of the version of NCCL's plugin
// interface (plugin.cpp translates).
//
// NCCL calls from any of its threads and the host's, so nothing here waits, allocates or fails:
// both tables have a fixed size, a full one returns "none", and losses are counted. Handles are
// numbers, never pointers: NCCL may return one late or twice (2.28 does, for API calls), and a
// number that no longer matches its slot is simply not found.
//
// An operation becomes a row when NCCL has enqueued it. A call that waits for its peers before that
// (connections are made at the first use) is recorded by a periodic check, as a row without a
// sequence number; it has the same start time as the row that may follow.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/rows.h"

namespace tidemark::injector {

// Turns the recording of NCCL operations on or off. NCCL checks its event mask each time, so this
// affects communicators that exist already.
void enable_nccl(bool wanted) noexcept;
bool nccl_enabled() noexcept;

// The address of the event mask of an NCCL, and the events to enable in it. One per copy of NCCL.
void note_mask(int* mask, int wanted) noexcept;

using NcclContext = uint32_t;  // index of a communicator in this process, from 1; 0: none
using NcclHandle = uint64_t;   // 0: none

struct NcclCommunicator {
  const char* name = nullptr;
  uint64_t id = 0;  // 0: named by the operations (before v4)
  int ranks = 0;
  int rank = 0;
  int nodes = 0;
};
// Also called while nothing is recorded: a communicator outlives a recording.
NcclContext open_communicator(const NcclCommunicator& communicator) noexcept;
void close_communicator(NcclContext context) noexcept;

struct NcclCall {
  const char* function = nullptr;
  const char* datatype = nullptr;
  const char* algorithm = nullptr;
  const char* protocol = nullptr;
  const char* communicator_name = nullptr;  // before v4
  uint64_t communicator_id = 0;             // before v4
  int rank = 0;                             // of this process in the communicator, before v4
  uint64_t sequence = 0;
  uint64_t count = 0;
  const void* send = nullptr;
  const void* receive = nullptr;
  const void* stream = nullptr;
  int64_t peer = 0;
  uint32_t channels = 0;
  NcclKind kind = NcclKind::kCollective;
  NcclHandle api = 0;    // the API call that caused it (from v5 on)
  NcclHandle group = 0;  // the group that runs it
};

// What the host requests: begin_api when it calls NCCL, end() when the call returns.
NcclHandle begin_api(NcclContext context, const NcclCall& call) noexcept;
// What NCCL does for a request.
NcclHandle begin_operation(NcclContext context, const NcclCall& call) noexcept;
// A group: the operations of one kernel.
NcclHandle begin_group(NcclContext context) noexcept;
// From here to end() the calling thread is inside NCCL: memory that it allocates is NCCL's.
NcclHandle begin_visit(NcclContext context) noexcept;

void end(NcclHandle handle) noexcept;

// Records the calls that NCCL has not started for `patience_ns`.
void record_waiting_calls(int64_t patience_ns) noexcept;

// An operation known only from NVTX: NCCL before 2.23 has no profiler plugin, but has always named
// its calls. `name` is NCCL's ("ncclAllReduce"); calls that move no data are ignored. Does nothing
// once the plugin has been used.
void record_named_call(const char* name, size_t size, int64_t start_ns, int64_t end_ns) noexcept;

// Bytes per element for NCCL's name of a type ("ncclFloat32", "ncclBfloat16"); 0: not known.
uint64_t nccl_type_bytes(const char* datatype) noexcept;

// Whether the calling thread is inside an NCCL call, or is a thread of NCCL by its name.
bool inside_nccl() noexcept;

// In a forked child, which has none of its parent's communicators.
void reset_nccl() noexcept;

}  // namespace tidemark::injector
