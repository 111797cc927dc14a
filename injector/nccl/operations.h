// NCCL's communicators and operations on their way into the trace, in terms that do not depend on
// the version of NCCL's plugin interface (plugin.cpp translates).
//
// NCCL calls from any of its threads and the host's, so nothing here waits, allocates or fails:
// both tables have a fixed size, a full one answers "none", and what is lost is counted. Handles
// are numbers, never pointers: NCCL may hand one back late or twice (2.28 does, for calls), and a
// number that no longer names its slot is simply not found.
//
// An operation becomes a row when NCCL has enqueued it. A call that waits for its peers before that
// (connections are made at the first use) is written down by a periodic look, as a row without a
// sequence number; it starts at the same instant as the row that may follow.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/rows.h"

namespace tidemark::injector {

// Whether the operations of NCCL are wanted from here on. NCCL looks at its mask of events each
// time, so that communicators which exist already begin to speak, or fall silent.
void enable_nccl(bool wanted) noexcept;
bool nccl_enabled() noexcept;

// Where an NCCL keeps its mask, and what is wanted of it. One per copy of NCCL in the process.
void note_mask(int* mask, int wanted) noexcept;

using NcclContext = uint32_t;  // number of a communicator in this process, from 1; 0: none
using NcclHandle = uint64_t;   // 0: none

struct NcclCommunicator {
  const char* name = nullptr;
  uint64_t id = 0;  // 0: told by the operations (before v4)
  int ranks = 0;
  int rank = 0;
  int nodes = 0;
};
// Also while nothing is recorded: a communicator lives longer than a recording.
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
  NcclHandle api = 0;    // the call that asked for it (from v5 on)
  NcclHandle group = 0;  // the plan that runs it
};

// What the host asks for: begin_api when it calls, end_api when the call returns.
NcclHandle begin_api(NcclContext context, const NcclCall& call) noexcept;
// What NCCL does for it.
NcclHandle begin_operation(NcclContext context, const NcclCall& call) noexcept;
// The operations of one kernel.
NcclHandle begin_group(NcclContext context) noexcept;
// The host's thread is inside NCCL from here to end(): memory that it asks for is NCCL's.
NcclHandle begin_visit(NcclContext context) noexcept;

void end(NcclHandle handle) noexcept;

// Writes down the calls that NCCL has not taken up for `patience_ns`.
void record_waiting_calls(int64_t patience_ns) noexcept;

// An operation of which only NVTX tells: NCCL before 2.23 knows no profiler plugin, but has always
// named its calls. `name` is NCCL's ("ncclAllReduce"); calls that move nothing are left out. Does
// nothing once the plugin has been used.
void record_named_call(const char* name, size_t size, int64_t start_ns, int64_t end_ns) noexcept;

// Bytes of one element by NCCL's name of its type ("ncclFloat32", "ncclBfloat16"); 0: not known.
uint64_t nccl_type_bytes(const char* datatype) noexcept;

// Whether the calling thread is inside a call of NCCL, or one of NCCL's own by its name.
bool inside_nccl() noexcept;

// A forked child has none of its parent's communicators.
void reset_nccl() noexcept;

}  // namespace tidemark::injector
